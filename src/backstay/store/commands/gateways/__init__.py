"""Commands about the people and the chats of gateways, and reports about gateways."""
