"""The gateway to Telegram. Needs the extra `telegram`."""
