"""Verbs that move a session to another window."""
