"""Exports and imports of whole sessions, in short steps and with bounded memory."""
