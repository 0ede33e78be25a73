"""Requests to providers over HTTP: connections, streams, errors and retries."""
