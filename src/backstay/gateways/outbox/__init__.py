"""Sends to chats: the ends of turns under receipts, and previews of unfinished answers."""
