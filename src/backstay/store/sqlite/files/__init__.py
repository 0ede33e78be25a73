"""The files of a SQLite store: creation, locks, identity."""
