"""Commands for operators: serve, doctor, tokens, agents, maintenance."""
