"""Authentication and authorisation: the gate, tokens, rate limits, agent roots."""
