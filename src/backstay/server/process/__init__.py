"""The processes of a server: supervisor, workers, readiness and shutdown."""
