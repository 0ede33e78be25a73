"""Sends to chats: the ends of turns under receipts, and previews of what is being written."""
