"""One adapter per peer. Each is imported only by a worker that runs in the environment of that peer."""
