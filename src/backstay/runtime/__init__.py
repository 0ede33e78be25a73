"""The runtime: turns that stream, checkpoint, and survive."""
