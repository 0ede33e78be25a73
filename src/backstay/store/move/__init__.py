"""Moves a whole store from one database to another, of any engine."""
