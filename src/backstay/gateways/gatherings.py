"""Open gatherings of a poller: their files are fetched, and their turns start after a quiet time."""

import asyncio
from contextlib import suppress
from functools import partial

import msgspec

from backstay.errors import Conflict, NotFound, Rejected
from backstay.gateways.platform import Platform, PlatformFile, SendRefused
from backstay.gateways.poller_tasks import PollerTasks
from backstay.model.content import Part, Text
from backstay.store.commands import gateway_commands

_MOST_FETCHING = 4


class MissingFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a message that are not fetched yet, and its text."""

    text: str
    files: tuple[PlatformFile, ...]

    @property
    def parts(self) -> tuple[Part, ...]:
        """What stands for the message meanwhile."""
        names = [Text(f"[{file.name}]") for file in self.files]
        return (*([Text(self.text)] if self.text.strip() else []), *names)


class Gatherings:
    """The open gatherings. All times are counted here; what was gathered is in the store."""

    def __init__(self, tasks: PollerTasks, platform: Platform) -> None:
        self._tasks, self._platform = tasks, platform
        self._app, self._proof, self._options = tasks.app, tasks.proof, tasks.options
        self._changed: dict[str, asyncio.Event] = {}
        self._fetching = asyncio.Semaphore(_MOST_FETCHING)

    async def resume(self) -> None:
        """Continue the gatherings of an earlier poller."""
        for arrival in await self._app.run(gateway_commands.gathered(self._proof.name, owner=self._proof.owner)):
            self.note(arrival.gathering, arrival.id, arrival.files)

    def note(self, gathering: str, arrival: str, files: str | None) -> None:
        """A message was added to a gathering: wait for quiet again, and fetch its files."""
        changed = self._changed.setdefault(gathering, asyncio.Event())
        changed.set()
        self._tasks.start(f"gathering {gathering}", partial(self._close_when_quiet, gathering, changed))
        if files is not None:
            missing = msgspec.json.decode(files, type=MissingFiles)
            self._tasks.start(f"files of {arrival}", partial(self._fetch, gathering, arrival, missing))

    async def _close_when_quiet(self, gathering: str, changed: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._options.longest
        while True:
            changed.clear()
            left = end - loop.time()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(self._options.quiet, left))):
                    await changed.wait()
                    continue
            late = loop.time() >= end
            closed = False

            async def close(late: bool = late) -> bool:
                nonlocal closed
                turn = await self._app.run(gateway_commands.close_gathering(self._proof, gathering, anyway=late))
                closed = turn is not None or late
                return True

            await self._tasks.persist(f"ending the gathering {gathering}", close)
            if closed and not changed.is_set():
                del self._changed[gathering]
                return
            if closed:
                end = loop.time() + self._options.longest

    async def _fetch(self, gathering: str, arrival: str, missing: MissingFiles) -> None:
        parts: list[Part] = [Text(missing.text)] if missing.text.strip() else []
        async with self._fetching:
            for file in missing.files:
                parts += await self._fetched(file)
        with suppress(NotFound, Conflict):
            await self._app.run(gateway_commands.fetched(self._proof, arrival, parts))
        if gathering in self._changed:
            self._changed[gathering].set()

    async def _fetched(self, file: PlatformFile) -> list[Part]:
        """The file, perhaps with its transcript. Both are stored at once: a message has one transcript, or none."""
        found: list[Part] = []

        async def fetch() -> bool:
            try:
                data = await self._platform.fetch(file)
                found.append(await self._app.upload(data, name=file.name, media_type=file.media_type))
            except (SendRefused, Rejected, Conflict) as error:
                found.append(Text(f"[{file.name} could not be fetched: {error}]"))
            else:
                found.extend(await self._transcript(file, data))
            return True

        await self._tasks.persist(f"fetching {file.name}", fetch)
        return found

    async def _transcript(self, file: PlatformFile, data: bytes) -> list[Part]:
        if self._options.transcription is None:
            return []
        text = await self._options.transcription.transcript(file.name, file.media_type, data)
        return [] if text is None else [Text(f"[transcript of {file.name}]\n{text}")]
