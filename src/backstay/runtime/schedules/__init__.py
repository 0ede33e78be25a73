"""Schedules in an open app: their methods, and the timer that fires them."""
