"""Addresses: where a message comes from, and how an address is spelled."""
