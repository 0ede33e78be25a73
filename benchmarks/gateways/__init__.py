"""Benchmarks of chat gateways."""
