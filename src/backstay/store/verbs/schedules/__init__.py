"""The verbs of schedules."""
