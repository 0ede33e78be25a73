"""Commands about the people of chat gateways."""
