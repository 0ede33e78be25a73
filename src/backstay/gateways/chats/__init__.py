"""What a gateway says itself in a chat: replies to commands, questions for approval, and the state of messages."""
