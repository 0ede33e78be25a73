"""The talk: a person on a stage, a session on an exchange, and what goes on between them.

Two tasks: one shows whatever the story tells, whoever it comes from; the other does what the person says, one thing
after the other. Nothing that is sent is shown before the story tells it, so what is seen is stored.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from backstay.cli import plain, screen
from backstay.cli.chat.choosing import choose
from backstay.cli.chat.commands import Order, help_lines, parse
from backstay.cli.chat.exchange import Away, Back, Busy, Exchange, Told
from backstay.cli.chat.paint import PROMPT
from backstay.cli.chat.stage import Heard, Line, Stage
from backstay.cli.chat.story import Block, Note, Story, blocks_of
from backstay.cli.documents import ENDINGS, Kind, document, kind_of, write
from backstay.cli.lineage import drawn
from backstay.errors import BackstayError, InvalidPayload, NotFound, NothingToDo, StoreUnavailable, StoryChanged
from backstay.model.address import Address
from backstay.model.ids import SessionId, TurnId
from backstay.model.message import Message
from backstay.model.search import SearchHit
from backstay.model.session import Session

# So many messages of what was said before are shown when a session is opened.
_SHOWN = 12
_LISTED = 15
_PAUSE = 0.5


class Talk:
    """A conversation, for as long as the person stays. `address` leads to the session they last went on in."""

    def __init__(self, exchange: Exchange, address: Address | None) -> None:
        self._exchange, self._address = exchange, address
        self._stage: Stage
        self.session: SessionId
        self._story = Story()
        self._sending: list[str] = []
        self._away = False
        self._listed: tuple[SessionId, ...] = ()
        self._interrupted = False
        self._watching: asyncio.Task[None] | None = None
        self._errands: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()

    # --- what the stage asks ----------------------------------------------------------------------------------------

    def tail(self) -> Sequence[Block]:
        """What is under way."""
        blocks = [*self._story.tail, *(Note(f"sending: {text}") for text in self._sending)]
        if self._away:
            return [*blocks, Note("the story cannot be read just now; trying again…", "bad")]
        if self._story.running:
            return [*blocks, Note("Ctrl-C cancels · Enter queues · /steer says it now")]
        return blocks

    def busy(self) -> bool:
        """Whether there is something that Ctrl-C would stop."""
        return self._story.running is not None

    # --- the walk ---------------------------------------------------------------------------------------------------

    async def run(self, stage: Stage, session: Session) -> None:
        """Talk until the person leaves."""
        self._stage = stage
        doing: asyncio.Task[None] | None = None
        lines: asyncio.Queue[Line] = asyncio.Queue()
        try:
            await self._open(session)
            doing = asyncio.create_task(self._do_all(lines), name="backstay doing")
            await self._listen(lines, doing)
        finally:
            for task in (doing, self._watching, *self._errands):
                await _stopped(task)

    async def _listen(self, lines: "asyncio.Queue[Line]", doing: "asyncio.Task[None]") -> None:
        """Take what the person does as it comes: Ctrl-C is heard whatever is under way."""
        hearing = asyncio.ensure_future(self._stage.hear())
        try:
            while not doing.done():
                await _first(hearing, doing, *self._unfinished())
                if not hearing.done():
                    continue
                if not await self._heard(hearing.result(), lines):
                    return
                hearing = asyncio.ensure_future(self._stage.hear())
            doing.result()
        finally:
            hearing.cancel()

    def _unfinished(self) -> "list[asyncio.Task[None]]":
        """The task that shows the story, while it does; whatever nobody foresaw in it is not kept quiet."""
        watching = self._watching
        if watching is None or watching.cancelled():
            return []
        if watching.done():
            watching.result()
            return []
        return [watching]

    async def _heard(self, heard: Heard, lines: "asyncio.Queue[Line]") -> bool:
        """Take in what the person did; whether they stay."""
        if heard == "interrupt":
            again, self._interrupted = self._interrupted, True
            if not again:
                await self._interrupt()
            return not again
        if heard == "leave":
            return False
        self._interrupted = False
        # At the end of a pipe, what it said is answered before the chat is over.
        lines.put_nowait(Line("/quit") if heard == "end" else heard)
        return True

    async def _interrupt(self) -> None:
        """Cancel what runs; nothing runs, say how to leave."""
        turn = self._story.running or next(iter(self._story.waiting), None)
        if turn is None:
            await self._stage.show([Note("Ctrl-C once more leaves; so do /quit and Ctrl-D")])
            return
        errand = asyncio.create_task(self._attempt(lambda: self._exchange.cancel(turn)), name="backstay cancelling")
        self._errands.add(errand)
        errand.add_done_callback(self._errands.discard)
        await self._stage.show([Note("cancelling; Ctrl-C once more leaves")])

    async def _do_all(self, lines: "asyncio.Queue[Line]") -> None:
        if self._stage.paced:
            await self._attempt(self._catch_up)
        while True:
            line = await lines.get()
            if line.text.strip() and await self._do(line):
                return
            self._stage.go_on()

    async def _do(self, line: Line) -> bool:
        """Do what a line says; whether the person leaves."""
        try:
            order = parse(line.text)
        except InvalidPayload as error:
            await self._complain(error)
            return False
        if isinstance(order, Order) and order.name == "quit":
            return True
        if isinstance(order, Order):
            await self._stage.show([Note(f"{PROMPT}{plain.one_line(line.text)}")])
            await self._attempt(lambda: self._obey(order))
        else:
            # Only words that were offered to be edited stand in place of what was said before.
            await self._attempt(lambda: self._edit(order) if line.offered else self._say(order))
        if self._stage.paced:
            await self._attempt(self._catch_up)
        return False

    async def _attempt(self, act: Callable[[], Awaitable[None]]) -> None:
        """Do something; what can be expected to go wrong is told, and the chat goes on."""
        try:
            await act()
        except BackstayError as error:
            await self._complain(error)

    async def _complain(self, error: BackstayError) -> None:
        hint = f" ({plain.one_line(error.advice)})" if error.advice else ""
        await self._stage.show([Note(f"{plain.lines(str(error.args[0]))}{hint}", "bad")])

    # --- talking ----------------------------------------------------------------------------------------------------

    async def _say(self, text: str, if_busy: Busy = "enqueue") -> None:
        await self._submit(text, lambda key: self._exchange.send(self.session, text, request_id=key, if_busy=if_busy))

    async def _edit(self, text: str) -> None:
        message = await self._last_said()
        await self._submit(text, lambda key: self._exchange.edit(self.session, message.id, text, request_id=key))

    async def _submit(self, text: str, send: Callable[[str], Awaitable[TurnId]]) -> None:
        self._sending.append(plain.one_line(text)[:80])
        self._stage.refresh()
        try:
            await send(uuid4().hex)
        finally:
            self._sending.pop()
            self._stage.refresh()

    async def _last_said(self) -> Message:
        for message in reversed(await self._exchange.messages(self.session, 100)):
            if message.role == "user":
                return message
        raise NothingToDo("you have said nothing here yet", hint="Say something first.")

    # --- commands ---------------------------------------------------------------------------------------------------

    async def _obey(self, order: Order) -> None:
        exchange, session, words = self._exchange, self.session, order.words
        match order.name:
            case "undo":
                await exchange.undo(session)
            case "redo":
                await exchange.redo(session)
            case "retry":
                await self._submit("/retry", lambda key: exchange.retry(session, request_id=key))
            case "steer":
                await self._say(words, "steer")
            case "compact":
                await self._compact(words)
            case "approve" | "deny":
                await self._decide(approved=order.name == "approve")
            case "edit":
                await self._edit_or_offer(words)
            case _:
                await self._look(order)

    async def _look(self, order: Order) -> None:
        """The commands that change nothing that was said."""
        match order.name:
            case "fork":
                await self._move(await self._exchange.fork(self.session))
            case "new":
                await self._begin(order.words)
            case "resume":
                await self._resume(order.words)
            case "search":
                await self._search(order.words)
            case "lineage":
                await self._lineage()
            case "title":
                await self._title(order.words)
            case "export":
                await self._export(order.words)
            case _:
                await self._stage.show([Note("\n".join(help_lines()))])

    async def _decide(self, *, approved: bool) -> None:
        asking = self._story.asking
        if asking is None:
            raise NothingToDo("no tool asks for your word", hint="One that does says what it asks to run with.")
        await self._exchange.decide(*asking, approved=approved)

    async def _compact(self, focus: str) -> None:
        before = (await self._exchange.session(self.session)).window
        await self._exchange.compact(self.session, focus)
        if (await self._exchange.session(self.session)).window == before:
            await self._stage.show([Note("there is nothing to summarise yet")])

    async def _edit_or_offer(self, words: str) -> None:
        if words:
            await self._edit(words)
            return
        message = await self._last_said()
        if not self._stage.put(plain.lines(message.text)):
            raise InvalidPayload("nobody can change the message here", hint="Write /edit WORDS")
        await self._stage.show([Note("Enter says this in place of your last message; Ctrl-C leaves it as it was")])

    async def _begin(self, title: str) -> None:
        session = await self._exchange.create(self._address)
        if title:
            await self._exchange.rename(session.id, title)
        await self._open(session)

    async def _move(self, session: Session) -> None:
        """Go on in another session; the next chat begins there."""
        if self._address is not None and session.state == "open":
            session = await self._exchange.point(self._address, session.id)
        await self._open(session)

    async def _resume(self, which: str) -> None:
        if not which:
            sessions = await self._exchange.sessions(_LISTED)
            self._listed = tuple(session.id for session in sessions)
            lines = [_listing(number, session, self.session) for number, session in enumerate(sessions, 1)]
            await self._stage.show([Note("\n".join([*lines, "/resume NUMBER goes on in one of them"]))])
            return
        await self._move(await self._named(which))

    async def _named(self, which: str) -> Session:
        if not which.isdecimal():
            return await choose(self._exchange, which)
        if not 1 <= int(which) <= len(self._listed):
            raise NotFound(f"there is no session {which} in the list", hint="/resume alone shows it.")
        return await self._exchange.session(self._listed[int(which) - 1])

    async def _search(self, words: str) -> None:
        found = await self._exchange.search(words)
        self._listed = tuple(hit.session for hit in found.hits)
        lines = [_hit(number, hit) for number, hit in enumerate(found.hits, 1)]
        behind = f"{found.lag:,} messages are not in the index yet" if found.lag else ""
        await self._stage.show([Note("\n".join([*(lines or ["nothing was found"]), *([behind] if behind else [])]))])

    async def _lineage(self) -> None:
        session = await self._exchange.session(self.session)
        windows = await self._exchange.lineage(self.session)
        await self._stage.show([Note("\n".join(drawn(session, windows)))])

    async def _title(self, words: str) -> None:
        if words:
            await self._exchange.rename(self.session, words)
        else:
            session = await self._exchange.session(self.session)
            await self._stage.show([Note(plain.one_line(session.title or "it has no title"))])

    async def _export(self, words: str) -> None:
        path, kind = _file(words, self.session)
        text = document(await self._exchange.export(self.session), kind)
        await asyncio.to_thread(write, path.expanduser(), text)
        await self._stage.show([Note(f"written to {plain.one_line(str(path))}")])

    # --- the story --------------------------------------------------------------------------------------------------

    async def _open(self, session: Session) -> None:
        """Show the session from a little before its end, and then whatever happens in it."""
        inherited, start = await self._beginning(session)
        await _stopped(self._watching)
        self.session, self._story = session.id, Story(start)
        title = f"{plain.one_line(session.title)} · " if session.title else ""
        await self._stage.show([Note(f"── {title}{session.id} · {plain.one_line(self._exchange.name)} ──")])
        await self._stage.show(inherited)
        self._watching = asyncio.create_task(self._watch(session.id), name="backstay story")

    async def _beginning(self, session: Session) -> tuple[list[Block], int]:
        """What a fork has from elsewhere, and the event after which the session's own last turns are told."""
        messages = await self._exchange.messages(session.id, _SHOWN)
        named = dict.fromkeys(message.turn for message in messages if message.turn)
        turns = await asyncio.gather(*map(self._exchange.turn, named))
        own = {turn.id: turn.event for turn in turns if turn.session == session.id}
        inherited = [message for message in messages if message.turn not in own]
        return blocks_of(inherited), min(own.values(), default=1) - 1

    async def _watch(self, session: SessionId) -> None:
        """Show what the story tells, as it tells it."""
        while True:
            try:
                async with aclosing(self._exchange.follow(session, self._story.seen)) as told:
                    async for one in told:
                        await self._tell(one)
                return
            except StoryChanged:
                await self._stage.show([Note("── some of what was shown was lost; it is read again ──", "bad")])
                _, start = await self._beginning(await self._exchange.session(session))
                self._story = Story(start)
            except BackstayError as error:
                await self._complain(error)
                return

    async def _tell(self, told: Told) -> None:
        match told:
            case Away(reason=reason):
                self._away = True
                await self._stage.show([Note(f"⋯ {plain.one_line(reason)}; trying again", "bad")])
            case Back():
                self._away = False
                await self._stage.show([Note("⋯ and here it is again")])
            case _:
                running = self._story.running
                await self._stage.show(self._story.tell(told))
                # Ctrl-C was meant for what ran then, not for what runs now.
                self._interrupted = self._interrupted and self._story.running in (None, running)
        self._stage.refresh()
        self._news.set()
        # A long story is told in one breath; whoever types meanwhile is heard.
        await asyncio.sleep(0)

    async def _catch_up(self) -> None:
        """Until all is shown that had happened by now, and nothing runs or a tool asks for the person's word."""
        last = await self._last_event()
        while not (self._story.seen >= last and (self._is_quiet() or self._story.asking)):
            watching = self._watching
            if watching is None or watching.done():
                return
            self._news.clear()
            news = asyncio.ensure_future(self._news.wait())
            await _first(news, watching)
            news.cancel()

    async def _last_event(self) -> int:
        """The number of the last event, for which a place that is away is waited for."""
        while True:
            with suppress(StoreUnavailable):
                return (await self._exchange.session(self.session)).last_event
            await asyncio.sleep(_PAUSE)

    def _is_quiet(self) -> bool:
        return self._story.over or not (self._story.running or self._story.waiting)


async def _first(*tasks: "asyncio.Future[Any]") -> None:  # Any: each gives something else
    """Until one of these is done."""
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


async def _stopped(task: "asyncio.Task[None] | None") -> None:
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _file(words: str, session: SessionId) -> tuple[Path, Kind]:
    """The file that is meant, and what it shall hold: by a word before it, or by its name's ending."""
    first, _, rest = words.partition(" ")
    for kind, endings in ENDINGS.items():
        if first.lower() == kind:
            return Path(rest.strip() or f"{session}{endings[0]}"), kind
    path = Path(words or f"{session}.json")
    return path, kind_of(path)


def _listing(number: int, session: Session, here: SessionId) -> str:
    name = plain.one_line(session.title or session.preview or session.id)
    state = "running" if session.running else session.state
    marked = "  ← here" if session.id == here else ""
    return f"{number:>3}  {screen.moment(session.active_at)}  {state:<8}{name[:80]}{marked}"


def _hit(number: int, hit: SearchHit) -> str:
    where, words = plain.one_line(hit.title or hit.session), plain.one_line(hit.snippet.text)
    return f"{number:>3}  {screen.moment(hit.at)}  {where}\n     {words}"
