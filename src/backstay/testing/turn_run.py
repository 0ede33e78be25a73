"""One turn, run to its end, with everything that a test asserts on."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from backstay.agents.adapters import AgentLike
from backstay.clock import Clock
from backstay.errors import ConfigError
from backstay.handles import SessionLike, TurnLike
from backstay.model.content import Content, Text, ToolCall
from backstay.model.event import Event, EventBody, ToolCalled
from backstay.model.history.chat_messages import MessageLike
from backstay.model.message import Message
from backstay.model.turn import Outcome, ToolCallRecord, TurnInfo
from backstay.runtime.app import open_app
from backstay.runtime.timing import Timing

Decide = bool | Callable[[ToolCall], bool]


class TurnRun(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that has ended.

    Attributes:
        outcome: How it ended: `Completed`, `Cancelled`, `Failed` or `Interrupted`.
        events: All its events, in order.
        messages: The messages that it added, the input first.
        calls: Its tool calls, as they are in the ledger.
        info: The turn as it is stored: its usage, its times, its id.
    """

    outcome: Outcome
    events: tuple[Event, ...]
    messages: tuple[Message, ...]
    calls: tuple[ToolCallRecord, ...]
    info: TurnInfo

    @property
    def text(self) -> str:
        """The text that the agent said, in all its messages."""
        return "".join(
            part.text
            for message in self.messages
            if message.role == "assistant"
            for part in message.parts
            if isinstance(part, Text)
        )

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls with their arguments, in the order of their events."""
        return tuple(event.body.call for event in self.events if isinstance(event.body, ToolCalled))


async def run_turn(
    agent: AgentLike,
    content: Content,
    *,
    history: Sequence[MessageLike] = (),
    approve: Decide | None = None,
    clock: Clock | None = None,
    timing: Timing | None = None,
    timeout_seconds: float = 120.0,
) -> TurnRun:
    """Run one turn of an agent in a new store, in a temporary folder, and return when it has ended.

    Args:
        agent: The agent: a function, a class, an object or `live(…)`, as `backstay.open` takes it.
        content: The input.
        history: Messages of the session before the input.
        approve: Decides about each tool call that waits for a person: True approves all, False denies all, and a
            function of the `ToolCall` decides about each one.
        clock: The source of time; None: the machine's.
        timing: Timeouts and intervals.
        timeout_seconds: How many seconds the turn may take.

    Returns:
        The turn.

    Raises:
        ConfigError: A tool call waits for a person, and `approve` is None. The turn was cancelled.
        TimeoutError: The turn did not end in time.
    """
    folder = await asyncio.to_thread(TemporaryDirectory, prefix="backstay-test-")
    try:
        async with open_app(Path(folder.name, "backstay.db"), agent=agent, clock=clock, timing=timing) as app:
            session = await app.session()
            if history:
                await session.record(history)
            return await finish_turn(
                session, await session.send(content), approve=approve, timeout_seconds=timeout_seconds
            )
    finally:
        await asyncio.to_thread(folder.cleanup)


async def finish_turn(
    session: SessionLike, turn: TurnLike, *, approve: Decide | None = None, timeout_seconds: float = 120.0
) -> TurnRun:
    """Follow a turn until it has ended. Any process may run it.

    Args:
        session: The session of the turn, in an app or on a server.
        turn: The turn.
        approve: Decides about each tool call that waits for a person, as in `run_turn`.
        timeout_seconds: How many seconds the turn may take.

    Returns:
        The turn.

    Raises:
        ConfigError: A tool call waits for a person, and `approve` is None. The turn was cancelled.
        TimeoutError: The turn did not end in time.
    """
    events: list[Event] = []
    async with _bounded(timeout_seconds, events), _events_of(turn) as stored:
        async for event in stored:
            events.append(event)
            if isinstance(event.body, ToolCalled):
                await _decide(turn, event.body.call, approve)
        info = await turn.read()
    if info.outcome is None:
        raise TimeoutError(f"the events of {turn.id} ended before the turn")
    messages = tuple(message for message in await session.messages() if message.turn == turn.id)
    return TurnRun(outcome=info.outcome, events=tuple(events), messages=messages, calls=await turn.calls(), info=info)


async def events_until(turn: TurnLike, kind: type[EventBody], *, timeout_seconds: float = 120.0) -> list[Event]:
    """Follow a turn until an event of a kind is stored, for a test that does something in the middle of a turn.

    Args:
        turn: The turn.
        kind: The class of the event's body, such as `backstay.events.TextDelta`.
        timeout_seconds: How many seconds to wait for the event.

    Returns:
        The events up to the first of this kind, which is the last one.

    Raises:
        TimeoutError: There was no such event in time, or the turn ended without one.
    """
    events: list[Event] = []
    async with _bounded(timeout_seconds, events), _events_of(turn) as stored:
        async for event in stored:
            events.append(event)
            if isinstance(event.body, kind):
                return events
    raise TimeoutError(f"{turn.id} ended without an event {kind.__name__}; it has {_kinds(events)}")


async def _decide(turn: TurnLike, call: ToolCall, approve: Decide | None) -> None:
    for record in await turn.calls():
        if record.call != call.id or record.approval != "asked":
            continue
        if approve is None:
            await turn.cancel()
            raise ConfigError(
                f"the call {call.id} of the tool {call.name} waits for a person",
                hint="Pass approve=True, approve=False, or a function of the call.",
            )
        allowed = approve(call) if callable(approve) else approve
        decide = turn.approve if allowed else turn.deny
        await decide(call.id, arguments_hash=record.arguments_hash)


@asynccontextmanager
async def _bounded(seconds: float, events: Sequence[Event]) -> AsyncIterator[None]:
    """Raise an error that names the events so far, if the block takes too long."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise TimeoutError(f"timed out after {seconds:g} s; the turn has {_kinds(events)}") from error


@asynccontextmanager
async def _events_of(turn: TurnLike) -> AsyncIterator[AsyncGenerator[Event, None]]:
    """The events of a turn; they are closed with the block."""
    events = turn.events()
    try:
        yield events
    finally:
        await events.aclose()


def _kinds(events: Sequence[Event]) -> str:
    return ", ".join(type(event.body).__name__ for event in events) or "no events"
