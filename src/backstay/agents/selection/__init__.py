"""Agent selection: specifications, discovery on this machine, and the choice."""
