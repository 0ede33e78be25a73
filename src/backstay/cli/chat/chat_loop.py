"""The interactive chat: connects a person (`ChatIO`) with a session (`Exchange`).

Two tasks run: one shows the events of the session from all clients; the other executes the person's input, one line
after the other. Input is shown only when its event arrives, so everything on the screen is stored.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from uuid import uuid4

from backstay.cli.chat.blocks import Block, ChatLog, NoteBlock, blocks_of
from backstay.cli.chat.chat_io import ChatIO, TypedLine, UserInput
from backstay.cli.chat.exchange import Busy, ChatEvent, Disconnected, Exchange, Reconnected, find_session
from backstay.cli.chat.slash_commands import ParsedCommand, help_lines, parse
from backstay.cli.chat.terminal_style import PROMPT
from backstay.cli.commands.lineage_command import drawn
from backstay.cli.output import safe_text, screen
from backstay.cli.output.document_files import ENDINGS, Kind, kind_of, save
from backstay.concurrency.child_tasks import child_tasks, run_concurrently
from backstay.errors import BackstayError, HistoryChanged, InvalidPayload, NotFound, NothingToDo, StoreUnavailable
from backstay.model.addresses.address import Address
from backstay.model.content import Attachment
from backstay.model.documents.records import ENDING
from backstay.model.ids import SessionId, TurnId
from backstay.model.message import Message
from backstay.model.search.results import SearchHit
from backstay.model.session import SessionInfo
from backstay.model.turn import TurnInfo

# The number of earlier messages that are shown when a session is opened.
_SHOWN = 12
_LISTED = 15
_PAUSE = 0.5
# Words with which people answer a tool's request for approval.
_DECISION_WORDS = frozenset("y yes ok okay sure approve approved allow go n no deny denied stop".split())
_HOW_TO_DECIDE = "/approve allows the tool call, /deny rejects it. Write it again to send it as a message."


class ChatLoop:
    """An interactive chat. `address` is updated to point to the session in which the person last continued."""

    def __init__(self, exchange: Exchange, address: Address | None) -> None:
        self._exchange, self._address = exchange, address
        self._io: ChatIO
        self.session: SessionId
        self._log = ChatLog()
        self._sending: list[str] = []
        self._attached: list[Attachment] = []
        self._disconnected = False
        self._listed: tuple[SessionId, ...] = ()
        self._interrupted = False
        self._explained: tuple[TurnId, str] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._background_tasks: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()

    # --- callbacks of the terminal ----------------------------------------------------------------------------------

    def tail(self) -> Sequence[Block]:
        """The blocks that can still change."""
        blocks = [*self._log.tail, *(NoteBlock(f"sending: {text}") for text in self._sending)]
        if self._disconnected:
            return [*blocks, NoteBlock("connection lost; reconnecting…", "bad")]
        if self._log.running:
            return [*blocks, NoteBlock("Ctrl-C cancels · Enter queues · /steer sends it to the running turn")]
        return blocks

    def busy(self) -> bool:
        """Whether a turn runs that Ctrl-C would cancel."""
        return self._log.running is not None

    # --- input ------------------------------------------------------------------------------------------------------

    async def run(self, chat_io: ChatIO, session: SessionInfo) -> None:
        """Chat until the person exits."""
        self._io = chat_io
        execution: asyncio.Task[None] | None = None
        lines: asyncio.Queue[TypedLine] = asyncio.Queue()
        try:
            await self._open(session)
            execution = asyncio.create_task(self._execute_all(lines), name="backstay chat input")
            await self._read_inputs(lines, execution)
        finally:
            await _cancel_and_wait(execution, self._watching, *self._background_tasks)
        if not self._io.paced:
            # The terminal erases the blocks that can still change together with the input line: write them above it.
            await self._io.show(self._log.tail)

    async def _read_inputs(self, lines: "asyncio.Queue[TypedLine]", execution: "asyncio.Task[None]") -> None:
        """Read the person's input as it arrives, so that Ctrl-C works while a line is being executed."""
        reading = asyncio.ensure_future(self._io.read_input())
        try:
            while not execution.done():
                await _wait_for_first(reading, execution, *self._unfinished())
                if not reading.done():
                    continue
                if not await self._handle(reading.result(), lines):
                    return
                reading = asyncio.ensure_future(self._io.read_input())
            execution.result()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    def _unfinished(self) -> "list[asyncio.Task[None]]":
        """Return the task that shows events, while it runs. An unexpected exception in it is raised here."""
        watching = self._watching
        if watching is None or watching.cancelled():
            return []
        if watching.done():
            watching.result()
            return []
        return [watching]

    async def _handle(self, user_input: UserInput, lines: "asyncio.Queue[TypedLine]") -> bool:
        """Handle one input; return whether the person stays."""
        if user_input == "interrupt":
            again, self._interrupted = self._interrupted, True
            if not again:
                await self._interrupt()
            return not again
        if user_input == "exit":
            return False
        self._interrupted = False
        # At the end of a pipe, exit only after all its lines have been executed.
        lines.put_nowait(TypedLine("/quit") if user_input == "end" else user_input)
        return True

    async def _interrupt(self) -> None:
        """Cancel the running turn; if no turn runs, show how to exit."""
        turn = self._log.running or next(iter(self._log.waiting), None)
        if turn is None:
            await self._io.show([NoteBlock("press Ctrl-C again to exit, or use /quit or Ctrl-D")])
            return
        background_task = asyncio.create_task(
            self._attempt(lambda: self._exchange.cancel(turn)), name="backstay cancelling"
        )
        self._background_tasks.add(background_task)
        background_task.add_done_callback(self._background_tasks.discard)
        await self._io.show([NoteBlock("cancelling; press Ctrl-C again to exit")])

    async def _execute_all(self, lines: "asyncio.Queue[TypedLine]") -> None:
        if self._io.paced:
            await self._attempt(self._catch_up)
        while True:
            line = await lines.get()
            if line.text.strip() and await self._execute(line):
                return
            self._io.resume()

    async def _execute(self, line: TypedLine) -> bool:
        """Execute a line; return whether the person exits."""
        try:
            order = parse(line.text)
        except InvalidPayload as error:
            await self._show_error(error)
            return False
        if isinstance(order, ParsedCommand) and order.name == "quit":
            return True
        if isinstance(order, str) and self._is_unclear_decision(order):
            await self._io.show([NoteBlock(f"{safe_text.one_line(order)} was not sent: {_HOW_TO_DECIDE}", "question")])
        elif isinstance(order, ParsedCommand):
            await self._io.show([NoteBlock(f"{PROMPT}{safe_text.one_line(line.text)}")])
            await self._attempt(lambda: self._run_command(order))
        else:
            # Only a line that started as an offered message (/edit) replaces that message.
            await self._attempt(lambda: self._edit(order) if line.offered else self._send(order))
        if self._io.paced:
            await self._attempt(self._catch_up)
        return False

    def _is_unclear_decision(self, text: str) -> bool:
        """Whether the person answers a tool's request with a word, which would be a message. Twice in a row, it is."""
        answers = text.strip().rstrip("!.").lower() in _DECISION_WORDS
        unclear = answers and self._log.first_undecided is not None and self._explained != self._log.first_undecided
        self._explained = self._log.first_undecided if unclear else None
        return unclear

    async def _attempt(self, act: Callable[[], Awaitable[None]]) -> None:
        """Run an action; show an expected error and continue the chat."""
        try:
            await act()
        except BackstayError as error:
            await self._show_error(error)

    async def _show_error(self, error: BackstayError) -> None:
        hint = f" ({safe_text.one_line(error.hint)})" if error.hint else ""
        await self._io.show([NoteBlock(f"{safe_text.lines(str(error.args[0]))}{hint}", "bad")])

    # --- sending ----------------------------------------------------------------------------------------------------

    async def _send(self, text: str, if_busy: Busy = "enqueue") -> None:
        files = tuple(self._attached)
        await self._submit(
            text,
            lambda key: self._exchange.send(self.session, text, request_id=key, if_busy=if_busy, files=files),
        )
        del self._attached[: len(files)]

    async def _edit(self, text: str) -> None:
        message = await self._last_message()
        await self._submit(text, lambda key: self._exchange.edit(self.session, message.id, text, request_id=key))

    async def _submit(self, text: str, send: Callable[[str], Awaitable[TurnId]]) -> None:
        self._sending.append(safe_text.one_line(text)[:80])
        self._io.refresh()
        try:
            await send(uuid4().hex)
        finally:
            self._sending.pop()
            self._io.refresh()

    async def _last_message(self) -> Message:
        for message in reversed(await self._exchange.messages(self.session, 100)):
            if message.role == "user":
                return message
        raise NothingToDo("you have not sent a message here yet", hint="Send one first.")

    # --- commands ---------------------------------------------------------------------------------------------------

    async def _run_command(self, order: ParsedCommand) -> None:
        exchange, session, words = self._exchange, self.session, order.words
        match order.name:
            case "undo":
                await exchange.undo(session)
            case "redo":
                await exchange.redo(session)
            case "retry":
                await self._submit("/retry", lambda key: exchange.retry(session, request_id=key))
            case "steer":
                await self._send(words, "steer")
            case "compact":
                await self._compact(words)
            case "approve" | "deny":
                await self._decide(approved=order.name == "approve")
            case "rerun" | "continue":
                await self._recover(order.name)
            case "edit":
                await self._edit_or_offer(words)
            case _:
                await self._run_other_command(order)

    async def _run_other_command(self, order: ParsedCommand) -> None:
        """Execute the commands that do not change the messages of this session."""
        match order.name:
            case "attach":
                await self._attach(order.words)
            case "detach":
                await self._detach()
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
            case _:
                await self._organise(order)

    async def _organise(self, order: ParsedCommand) -> None:
        """Execute the commands about the session as a whole, and show the help."""
        match order.name:
            case "title":
                await self._title(order.words)
            case "remind":
                await self._remind(order.words)
            case "export":
                await self._export(order.words)
            case _:
                await self._io.show([NoteBlock("\n".join(help_lines()))])

    async def _attach(self, words: str) -> None:
        """Upload a file, to be sent with the next message."""
        try:
            file = await self._exchange.upload(await asyncio.to_thread(Path(words).expanduser))
        except OSError as error:
            raise InvalidPayload(f"{words} cannot be read: {error.strerror}", hint="Check the path.") from error
        self._attached.append(file)
        names = ", ".join(safe_text.one_line(f"{one.name} ({one.size:,} bytes)") for one in self._attached)
        await self._io.show([NoteBlock(f"attached to your next message: {names}")])

    async def _detach(self) -> None:
        if not self._attached:
            raise NothingToDo("no file is attached", hint="/attach PATH attaches one.")
        self._attached.clear()
        await self._io.show([NoteBlock("your next message has no files")])

    async def _decide(self, *, approved: bool) -> None:
        undecided = self._log.first_undecided
        if undecided is None:
            raise NothingToDo(
                "no tool call needs approval", hint="A call that needs approval is shown with its arguments."
            )
        await self._exchange.decide(*undecided, approved=approved)

    async def _recover(self, name: str) -> None:
        """Continue an interrupted turn, or allow its tools that may have run to run again."""
        if name == "rerun":
            if not self._log.in_doubt:
                raise NothingToDo("no tool call needs this decision", hint="/continue resumes an interrupted turn.")
            await self._exchange.rerun(*next(iter(self._log.in_doubt)))
        elif self._log.interrupted is None:
            raise NothingToDo("the last turn was not interrupted", hint="/retry runs the last message again.")
        else:
            await self._exchange.resume(self._log.interrupted)

    async def _compact(self, focus: str) -> None:
        before = (await self._exchange.session(self.session)).window
        await self._exchange.compact(self.session, focus)
        if (await self._exchange.session(self.session)).window == before:
            await self._io.show([NoteBlock("there is nothing to summarise yet")])

    async def _remind(self, words: str) -> None:
        when, mark, text = words.partition(": ")
        if not mark or not text.strip():
            raise InvalidPayload("the time and the text are not separated", hint="Write /remind day 9:00: Stand up!")
        made = await self._exchange.remind(self.session, when, text.strip(), request_id=f"remind-{uuid4().hex}")
        due = screen.moment(made.next_due)
        await self._io.show([NoteBlock(f"{made.when}, first at {due}; `backstay schedules` manages {made.id}")])

    async def _edit_or_offer(self, words: str) -> None:
        if words:
            await self._edit(words)
            return
        message = await self._last_message()
        if not self._io.put(safe_text.lines(message.text)):
            raise InvalidPayload("the message cannot be edited in place here", hint="Write /edit WORDS")
        await self._io.show([NoteBlock("Enter sends this in place of your last message; Ctrl-C discards it")])

    async def _begin(self, title: str) -> None:
        session = await self._exchange.create(self._address)
        if title:
            await self._exchange.rename(session.id, title)
        await self._open(session)

    async def _move(self, session: SessionInfo) -> None:
        """Switch to another session; the next chat at this address starts there."""
        if self._address is not None and session.state == "open":
            session = await self._exchange.point(self._address, session.id)
        await self._open(session)

    async def _resume(self, which: str) -> None:
        if not which:
            sessions = await self._exchange.sessions(_LISTED)
            self._listed = tuple(session.id for session in sessions)
            lines = [_listing(number, session, self.session) for number, session in enumerate(sessions, 1)]
            await self._io.show([NoteBlock("\n".join([*lines, "/resume NUMBER continues one of them"]))])
            return
        await self._move(await self._named(which))

    async def _named(self, which: str) -> SessionInfo:
        if not which.isdecimal():
            return await find_session(self._exchange, which)
        if not 1 <= int(which) <= len(self._listed):
            raise NotFound(f"there is no session {which} in the list", hint="/resume alone shows the list.")
        return await self._exchange.session(self._listed[int(which) - 1])

    async def _search(self, words: str) -> None:
        found = await self._exchange.search(words)
        self._listed = tuple(hit.session for hit in found.hits)
        lines = [_hit(number, hit) for number, hit in enumerate(found.hits, 1)]
        behind = f"{found.lag:,} messages are not in the index yet" if found.lag else ""
        await self._io.show([NoteBlock("\n".join([*(lines or ["nothing was found"]), *([behind] if behind else [])]))])

    async def _lineage(self) -> None:
        session = await self._exchange.session(self.session)
        windows = await self._exchange.lineage(self.session)
        await self._io.show([NoteBlock("\n".join(drawn(session, windows)))])

    async def _title(self, words: str) -> None:
        if words:
            await self._exchange.rename(self.session, words)
        else:
            session = await self._exchange.session(self.session)
            await self._io.show([NoteBlock(safe_text.one_line(session.title or "it has no title"))])

    async def _export(self, words: str) -> None:
        path, kind = _file(words, self.session)
        with TemporaryFile() as lines:
            await self._exchange.export_to(self.session, lines)
            await asyncio.to_thread(save, path.expanduser(), lines, kind)
        await self._io.show([NoteBlock(f"written to {safe_text.one_line(str(path))}")])

    # --- events -----------------------------------------------------------------------------------------------------

    async def _open(self, session: SessionInfo) -> None:
        """Show the last messages of a session, then follow its events."""
        inherited, start = await self._beginning(session)
        await _cancel_and_wait(self._watching)
        self.session, self._log = session.id, ChatLog(start)
        title = f"{safe_text.one_line(session.title)} · " if session.title else ""
        await self._io.show([NoteBlock(f"── {title}{session.id} · {safe_text.one_line(self._exchange.name)} ──")])
        await self._io.show(inherited)
        self._watching = asyncio.create_task(self._watch(session.id), name="backstay chat events")

    async def _beginning(self, session: SessionInfo) -> tuple[list[Block], int]:
        """Return the messages that a fork inherited, and the event number after which its own last turns are read."""
        messages = await self._exchange.messages(session.id, _SHOWN)
        named = dict.fromkeys(message.turn for message in messages if message.turn)
        turns = await self._turns(named)
        own = {turn.id: turn.event for turn in turns if turn.session == session.id}
        inherited = [message for message in messages if message.turn not in own]
        return blocks_of(inherited), min(own.values(), default=1) - 1

    async def _turns(self, named: Iterable[TurnId]) -> list[TurnInfo]:
        """Read these turns concurrently. If one cannot be read, no read is left running."""
        return await run_concurrently([self._exchange.turn(turn) for turn in named], "backstay turn")

    async def _watch(self, session: SessionId) -> None:
        """Show the events of the session as they arrive."""
        while True:
            try:
                async with aclosing(self._exchange.follow(session, self._log.seen)) as events:
                    async for event in events:
                        await self._apply(event)
                return
            except HistoryChanged:
                await self._io.show([NoteBlock("── some of the events shown were lost; reading again ──", "bad")])
                _, start = await self._beginning(await self._exchange.session(session))
                self._log = ChatLog(start)
            except BackstayError as error:
                await self._show_error(error)
                return

    async def _apply(self, event: ChatEvent) -> None:
        match event:
            case Disconnected(reason=reason):
                self._disconnected = True
                await self._io.show([NoteBlock(f"⋯ {safe_text.one_line(reason)}; reconnecting", "bad")])
            case Reconnected():
                self._disconnected = False
                await self._io.show([NoteBlock("⋯ reconnected")])
            case _:
                running = self._log.running
                await self._io.show(self._log.apply(event))
                # A first Ctrl-C counts only for the turn that ran then: after a new turn starts, one press cancels.
                self._interrupted = self._interrupted and self._log.running in (None, running)
        self._io.refresh()
        self._news.set()
        # Replayed events arrive without a pause; give the input task a chance to run.
        await asyncio.sleep(0)

    async def _catch_up(self) -> None:
        """Wait until all events up to now are shown, and no turn runs or a tool call needs approval."""
        last = await self._last_event()
        while not (self._log.seen >= last and (self._is_quiet() or self._log.first_undecided)):
            watching = self._watching
            if watching is None or watching.done():
                return
            self._news.clear()
            async with child_tasks() as start:
                await _wait_for_first(start(self._news.wait(), "backstay news"), watching)

    async def _last_event(self) -> int:
        """Return the number of the last event; retry while the store or server is unavailable."""
        while True:
            with suppress(StoreUnavailable):
                return (await self._exchange.session(self.session)).last_event
            await asyncio.sleep(_PAUSE)

    def _is_quiet(self) -> bool:
        return self._log.closed or not (self._log.running or self._log.waiting)


async def _wait_for_first(*tasks: "asyncio.Future[Any]") -> None:  # Any: each gives something else
    """Wait until one of these is done."""
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


async def _cancel_and_wait(*tasks: "asyncio.Task[Any] | None") -> None:  # Any: each gives something else
    """Cancel these tasks and wait for all of them; then raise the first error that one of them ended with."""
    started = [task for task in tasks if task is not None]
    for task in started:
        task.cancel()
    for result in await asyncio.gather(*started, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


def _file(words: str, session: SessionId) -> tuple[Path, Kind]:
    """Return the file and its format: from a word before the path, or from the file name's suffix."""
    first, _, rest = words.partition(" ")
    for kind, endings in ENDINGS.items():
        if first.lower() == kind:
            return Path(rest.strip() or f"{session}{endings[0]}"), kind
    path = Path(words or f"{session}{ENDING}")
    return path, kind_of(path)


def _listing(number: int, session: SessionInfo, here: SessionId) -> str:
    name = safe_text.one_line(session.title or session.preview or session.id)
    state = "running" if session.running else session.state
    marked = "  ← here" if session.id == here else ""
    return f"{number:>3}  {screen.moment(session.active_at)}  {state:<8}{name[:80]}{marked}"


def _hit(number: int, hit: SearchHit) -> str:
    where, words = safe_text.one_line(hit.title or hit.session), safe_text.one_line(hit.snippet.text)
    return f"{number:>3}  {screen.moment(hit.at)}  {where}\n     {words}"
