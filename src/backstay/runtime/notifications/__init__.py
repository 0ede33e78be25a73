"""Notifications to other programs and devices, sent from a durable outbox."""
