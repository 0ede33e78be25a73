"""The web UI's files and pages."""
