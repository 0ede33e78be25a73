"""Commands that read, send to and organise sessions."""
