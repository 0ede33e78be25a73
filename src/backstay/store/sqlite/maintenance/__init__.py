"""Checkup, rescue, vacuum and moves of a SQLite file."""
