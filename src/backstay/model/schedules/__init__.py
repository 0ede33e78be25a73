"""Schedules: turns that are submitted at a moment, or again and again."""
