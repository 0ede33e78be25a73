"""The client: the handles of an app, over HTTP."""
