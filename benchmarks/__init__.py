"""Benchmarks: ratios against raw drivers, measured in the same run."""
