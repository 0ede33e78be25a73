"""Chats in which the platform asked to wait: until then nothing is edited there."""

import asyncio


class ChatPauses:
    """The pauses of one poller. Only what may be lost waits here; answers have their own receipts."""

    def __init__(self) -> None:
        self._ends: dict[str, float] = {}

    def note(self, chat: str, seconds: float) -> None:
        """The platform asked to wait for so many seconds in a chat."""
        now = asyncio.get_running_loop().time()
        self._ends = {known: end for known, end in self._ends.items() if end > now}
        self._ends[chat] = max(self._ends.get(chat, 0.0), now + seconds)

    async def claim(self, chat: str, seconds: float) -> None:
        """Wait until the chat may be changed, and claim it: the next one waits for so many seconds after this."""
        loop = asyncio.get_running_loop()
        while True:
            left = self._ends.get(chat, 0.0) - loop.time()
            if left <= 0:
                break
            await asyncio.sleep(left)
        self.note(chat, seconds)
