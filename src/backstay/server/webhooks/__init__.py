"""Webhooks: signed requests of other programs, and signed requests to them."""
