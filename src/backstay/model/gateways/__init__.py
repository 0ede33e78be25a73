"""Values of chat gateways: accounts on chat platforms, what they receive, and what they send."""
