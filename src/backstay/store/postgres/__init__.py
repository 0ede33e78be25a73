"""The PostgreSQL engine, for many machines."""
