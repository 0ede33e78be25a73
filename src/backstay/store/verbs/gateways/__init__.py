"""Operations of chat gateways: the poller's lease, received messages, and deliveries."""
