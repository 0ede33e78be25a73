"""The HTTP server on top of the runtime. All state of sessions is in the store."""
