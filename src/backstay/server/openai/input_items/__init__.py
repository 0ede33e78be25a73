"""Items that clients send: references resolved, files stored, and the rest converted to messages."""
