"""Turns and messages as objects and events of the OpenAI-compatible API."""
