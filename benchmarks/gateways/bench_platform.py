"""A chat platform in memory: people write to it, and it notes when the first answer to each was sent."""

import asyncio
from collections.abc import Sequence
from time import perf_counter

from backstay.gateways.platform import (
    ButtonRows,
    ChatPlace,
    IncomingMessage,
    OfferedCommand,
    OutgoingFile,
    PlatformFile,
    PreviewPace,
    Update,
)


class BenchPlatform:
    """An account without a network. It shows no previews, so the first message is the answer."""

    most_units = 4096
    most_file_bytes = 1 << 20

    def __init__(self) -> None:
        self._updates: list[Update] = []
        self._written = asyncio.Event()
        self._answered: dict[str, asyncio.Future[float]] = {}

    async def write(self, chat: str) -> float:
        """A person writes; returns the seconds until the answer was sent."""
        self._answered[chat] = asyncio.get_running_loop().create_future()
        number = len(self._updates) + 1
        place = ChatPlace(kind="dm", chat=chat)
        message = IncomingMessage(id=f"{chat}/{number}", place=place, number=number, sender=chat, text="question")
        start = perf_counter()
        self._updates.append(Update(cursor=str(number), message=message))
        self._written.set()
        return await self._answered[chat] - start

    async def identify(self) -> str:
        return "bench/1"

    async def receive(self, cursor: str) -> Sequence[Update]:
        while len(self._updates) <= int(cursor or 0):
            self._written.clear()
            await self._written.wait()
        return self._updates[int(cursor or 0) : int(cursor or 0) + 100]

    async def send(self, place: ChatPlace, text: str) -> str:
        waiting = self._answered[place.chat]
        if not waiting.done():
            waiting.set_result(perf_counter())
        return f"{place.chat}/{text[:8]}"

    async def ask(self, place: ChatPlace, text: str, buttons: ButtonRows) -> str:
        return await self.send(place, text)

    async def edit(self, message: str, text: str, buttons: ButtonRows = ()) -> None:
        """Nobody looks."""

    async def send_file(self, place: ChatPlace, file: OutgoingFile, note: str) -> str:
        return await self.send(place, note)

    async def remove(self, message: str) -> None:
        """Nobody looks."""

    def pace(self, place: ChatPlace) -> PreviewPace:
        return PreviewPace(seconds=3_600.0)

    async def preview(self, place: ChatPlace, text: str, *, number: int, message: str | None) -> str | None:
        return None

    async def answer(self, press: str, text: str) -> None:
        """Nobody presses a button."""

    async def offer(self, commands: Sequence[OfferedCommand]) -> None:
        """There is no menu."""

    async def fetch(self, file: PlatformFile) -> bytes:
        return b""
