"""Observation of other workers: their commits, hints and leases."""
