"""Agents that call a model over HTTP."""
