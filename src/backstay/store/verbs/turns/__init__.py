"""Verbs of turns, and the event log and the messages that they write."""
