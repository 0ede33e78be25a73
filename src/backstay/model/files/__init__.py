"""Files that people and programs upload."""
