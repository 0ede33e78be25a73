"""The verbs: each is a function of one transaction, the same on every engine."""
