"""Server-sent events: connections, cursors, and reads that clients share."""
