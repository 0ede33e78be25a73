"""The embedded engine: SQLite through apsw, one file, any number of processes on one machine."""
