"""Checks of the source tree that no standard tool makes."""
