"""Helpers of the contract: owners, addresses, turns, and everything that a store returns about a session."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
import pytest

from backstay.errors import BackstayError
from backstay.model import message
from backstay.model.addresses.address import Address
from backstay.model.content import Body, Content, Part, Text
from backstay.model.event import Event, EventBody
from backstay.model.ids import SessionId, TurnId
from backstay.model.marks import Marks
from backstay.model.message import Message
from backstay.model.session import SessionInfo
from backstay.model.turn import (
    Cancelled,
    Completed,
    Failed,
    Finished,
    Interrupted,
    OpenTurn,
    Outcome,
    ToolCallRecord,
    TurnInfo,
)
from backstay.model.window import Window
from backstay.store import Store

ME = "me"
STRANGER = "a stranger"
AGENT = "default"

# Role and text, in a form that is easy to compare.
Lines = list[tuple[str, tuple[Part, ...]]]

OUTCOMES = [
    Completed(),
    Cancelled("asked to"),
    Failed("no network", code="key_refused", hint="Plug it in."),
    Interrupted("stopped"),
]
every_outcome = pytest.mark.parametrize("outcome", OUTCOMES, ids=["completed", "cancelled", "failed", "interrupted"])


def room(name: str = "kitchen") -> Address:
    """The address of a chat; the same name gives the same address."""
    return Address.chat("matrix", "group", chat=name)


def new_session(store: Store, *, owner: str = ME) -> SessionId:
    """A session to which no address leads."""
    return store.create(owner=owner).id


def talk(store: Store, session: SessionId, turns: int = 1, *, owner: str = ME) -> tuple[TurnInfo, ...]:
    """Record this number of turns: "question 1", "answer 1", "question 2" and so on, numbered within the session."""
    before = store.session(session, owner=owner).turns
    return tuple(
        store.record(
            session, [message.user(f"question {number}"), message.assistant(f"answer {number}")], owner=owner
        ).turn
        for number in range(before + 1, before + turns + 1)
    )


def start(
    store: Store, to: Address | SessionId, content: Content = "hello", *, owner: str = ME, agent: str = AGENT
) -> OpenTurn:
    """Start a turn in an idle session; returns its proof."""
    opened = store.submit(to, content, owner=owner, agent=agent, start=True).opened
    assert opened is not None, "nobody speaks here, so the turn starts"
    return opened


def enqueue(store: Store, session: SessionId, content: Content = "later", *, agent: str = AGENT) -> TurnInfo:
    """Submit a turn that waits."""
    turn = store.submit(session, content, owner=ME, agent=agent).turn
    assert turn.state == "waiting"
    return turn


def say(store: Store, proof: OpenTurn, *bodies: Body) -> OpenTurn:
    """Checkpoint these bodies; the next proof."""
    return store.checkpoint(proof, bodies).open


def run(
    store: Store,
    to: Address | SessionId,
    content: Content = "hello",
    answer: str | Sequence[Body] = "hi",
    *,
    outcome: Outcome | None = None,
) -> Finished:
    """One whole turn: asked, answered, ended."""
    bodies = [Text(answer)] if isinstance(answer, str) else answer
    return store.finish(start(store, to, content), outcome or Completed(), bodies=bodies)


def texts(store: Store, session: SessionId, *, owner: str = ME) -> list[str]:
    """The texts of the current messages of the session."""
    return [said.text for said in said_in(store, session, owner=owner)]


def said_in(store: Store, session: SessionId, *, owner: str = ME) -> tuple[Message, ...]:
    """The current messages of the session."""
    return store.messages(session, owner=owner).messages


def events_of(store: Store, session: SessionId, *, owner: str = ME) -> tuple[Event, ...]:
    """Every event of the session."""
    page = store.events_after(session, owner=owner, limit=1000)
    assert not page.more, "the contract's sessions have short stories"
    return page.events


def bodies_of(store: Store, session: SessionId, *, owner: str = ME) -> list[EventBody]:
    """The bodies of every event of the session."""
    return [event.body for event in events_of(store, session, owner=owner)]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a store shows of one session: a rejected verb must not change it."""

    sessions: int
    session: SessionInfo
    events: tuple[Event, ...]
    messages: tuple[Message, ...]
    lineage: tuple[Window, ...]
    waiting: tuple[TurnInfo, ...]
    addresses: tuple[str, ...]
    marks: Marks
    turns: tuple[TurnInfo, ...]
    calls: tuple[ToolCallRecord, ...]


def look(store: Store, session: SessionId, turns: Sequence[TurnId] = (), *, owner: str = ME) -> Seen:
    """Everything visible of a session, and of these turns."""
    return Seen(
        sessions=len(store.list(owner=owner, limit=1000).sessions),
        session=store.session(session, owner=owner),
        events=events_of(store, session, owner=owner),
        messages=said_in(store, session, owner=owner),
        lineage=store.lineage(session, owner=owner),
        waiting=store.waiting(session, owner=owner),
        addresses=store.addresses(session, owner=owner),
        marks=store.marks(session, owner=owner),
        turns=tuple(store.turn(turn, owner=owner) for turn in turns),
        calls=tuple(call for turn in turns for call in store.calls(turn, owner=owner)),
    )


@contextmanager
def refused(
    store: Store,
    session: SessionId,
    error: type[BackstayError] | tuple[type[BackstayError], ...],
    *turns: TurnId,
    owner: str = ME,
) -> Iterator[None]:
    """The block raises this error with a hint, and changes nothing."""
    before = look(store, session, turns, owner=owner)
    with pytest.raises(error) as caught:
        yield
    assert caught.value.hint, f"{caught.value!r} does not say what to do next"
    assert look(store, session, turns, owner=owner) == before


def answer_of(verb: Callable[[], object]) -> object:
    """The result of a verb, or its error."""
    try:
        return verb()
    except BackstayError as error:
        return error
