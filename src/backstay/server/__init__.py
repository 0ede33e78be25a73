"""The server: the runtime behind HTTP, and nothing that the log does not say."""
