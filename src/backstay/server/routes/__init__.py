"""The operations of the own API, by the noun they are about."""
