"""Checkup, upkeep and moves of a PostgreSQL database."""
