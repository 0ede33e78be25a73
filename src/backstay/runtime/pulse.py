"""The pulse: wakes those who follow a session when its story has gone on, in whatever process that happened."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from backstay.errors import StoreError, StoreUnavailable
from backstay.model.ids import SessionId
from backstay.runtime.crossing import Crossing
from backstay.runtime.interval import Interval


class Watch:
    """Somebody's interest in one session; in all of it, or without haste for the words of a running turn."""

    def __init__(
        self, session: SessionId, owner: str, *, words: bool = True, news: asyncio.Event | None = None
    ) -> None:
        self.session, self.owner, self.words = session, owner, words
        self._head = 0
        self._closed = False
        self._news = news or asyncio.Event()

    @property
    def head(self) -> int:
        """The number of the last event that is known of."""
        return self._head

    async def beyond(self, number: int) -> None:
        """Wait until the story has an event after this number; `StoreUnavailable` when the app is closed."""
        while self._head <= number:
            if self._closed:
                raise StoreUnavailable("the app was closed", hint="Open it again and go on after the last event.")
            self._news.clear()
            await self._news.wait()

    def tell(self, head: int) -> None:
        """The story has come this far."""
        if head > self._head:
            self._head = head
            self._news.set()

    def close(self) -> None:
        """Nothing more will be told."""
        self._closed = True
        self._news.set()


class Pulse:
    """Polls the store's version while somebody watches; what this process writes is told at once, as a shortcut.

    The shortcut only makes things prompt: without it (`prompt=False`) everything works the same, a moment later.
    """

    def __init__(self, crossing: Crossing, interval: Interval, *, prompt: bool = True) -> None:
        self._crossing, self._interval, self._prompt = crossing, interval, prompt
        self._watches: dict[SessionId, set[Watch]] = {}
        self._beats: set[asyncio.Event] = set()
        self._somebody = asyncio.Event()
        self._version = -1
        self.beats = 0
        self.closed = False

    @contextmanager
    def watch(
        self, session: SessionId, owner: str, *, words: bool = True, news: asyncio.Event | None = None
    ) -> Iterator[Watch]:
        """Be woken for this session inside the block; without `words`, not at once for each that its agent says.

        Who watches several sessions hands in one event for the news of all of them.
        """
        self._crossing.refuse_strangers()
        watch = Watch(session, owner, words=words, news=news)
        if self.closed:
            watch.close()
        self._watches.setdefault(session, set()).add(watch)
        self._version = -1
        self._somebody.set()
        try:
            yield watch
        finally:
            others = self._watches[session]
            others.discard(watch)
            if not others:
                del self._watches[session]

    @contextmanager
    def listen(self, beat: asyncio.Event | None = None) -> Iterator[asyncio.Event]:
        """Inside the block, an event that is set whenever anything was written anywhere, and when the app closes."""
        self._crossing.refuse_strangers()
        beat = beat or asyncio.Event()
        self._beats.add(beat)
        self._somebody.set()
        try:
            yield beat
        finally:
            self._beats.discard(beat)

    def tell(self, session: SessionId, head: int, *, words: bool = False) -> None:
        """This process has just written an event; perhaps nothing but words of a turn that goes on."""
        if self._prompt:
            self._beat()
            for watch in self._watches.get(session, ()):
                if watch.words or not words:
                    watch.tell(head)

    def close(self) -> None:
        """Let everybody go who waits."""
        self.closed = True
        self._beat()
        for group in self._watches.values():
            for watch in group:
                watch.close()

    async def run(self) -> None:
        """Poll for ever; ends by cancellation."""
        while True:
            if not self._watches and not self._beats:
                self._somebody.clear()
                await self._somebody.wait()
            await self._look()
            await self._interval.elapse()

    async def _look(self) -> None:
        try:
            version = await self._crossing.version()
            if version == self._version:
                return
            # However many watch a session, it is looked up once.
            watched = {(watch.session, watch.owner) for group in self._watches.values() for watch in group}
            heads = await self._crossing.read(self._crossing.store.heads, watched)
        except StoreError:
            return  # Whoever follows meets the fault at its own next read and reports it.
        self._version = version
        self._beat()
        for session, head in heads.items():
            for watch in self._watches.get(session, ()):
                watch.tell(head)

    def _beat(self) -> None:
        self.beats += 1
        for beat in self._beats:
            beat.set()
