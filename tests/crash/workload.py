"""A workload of a store, step by step, and the resulting history, by which crashes are judged."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from backstay import Address, Store, Text, ToolCall, ToolResult
from backstay.model import message as m
from backstay.model.event import START, Event, TextDelta, ThoughtDelta, TurnEnded, WindowOpened
from backstay.model.ids import SessionId
from backstay.model.message import Message
from backstay.model.turn import Completed, Failed, OpenTurn
from tests.open_sqlite import open_sqlite
from tests.simulated_disk import Disk

ME = "me"
LAST_WORDS = "and then it sto"

Open = Callable[[], Store]


class Acknowledged(NamedTuple):
    """A verb that has returned; `durable` ones promise to survive power loss."""

    verb: str
    durable: bool = True


Play = Callable[[Open], Iterator[Acknowledged]]


def address(name: str) -> Address:
    """A chat of its own."""
    return Address.chat("matrix", "group", chat=name)


def started(store: Store, to: Address | SessionId, text: str) -> OpenTurn:
    """A turn that runs under this store's lease."""
    opened = store.submit(to, text, owner=ME, start=True).opened
    assert opened is not None, "nobody else speaks here"
    return opened


class Opener:
    """Opens the store at this path on each call, and closes the open ones at the end."""

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self._path, self._disk = path, disk
        self.opened: list[Store] = []

    def __call__(self) -> Store:
        self.opened.append(self.open(self._path, self._disk))
        return self.opened[-1]

    def open(self, path: Path, disk: Disk | None) -> Store:
        return open_sqlite(path, disk=disk)

    def close(self) -> None:
        for store in self.opened:
            store.close()


def a_day(open_it: Open) -> Iterator[Acknowledged]:
    """Every verb that writes history, once; at the end a turn is left running in the middle of its output."""
    store = open_it()
    kitchen = store.resolve(address("kitchen"), owner=ME).session.id
    yield Acknowledged("resolve")
    alone = store.submit("new", "is anybody here?", owner=ME).session.id
    yield Acknowledged("submit to a new session")
    store.delete(alone, owner=ME)
    yield Acknowledged("delete")
    turn = started(store, kitchen, "what is there to eat?")
    yield Acknowledged("submit")
    turn = store.checkpoint(turn, [Text("let me ")]).open
    yield Acknowledged("checkpoint", durable=False)
    turn = store.checkpoint(turn, [Text("look"), ToolCall("c1", "look", {"in": "fridge"})]).open
    yield Acknowledged("tool call")
    turn = store.checkpoint(turn, [ToolResult("c1", ["milk"])]).open
    yield Acknowledged("tool result")
    turn = store.checkpoint(turn, [Text("milk")]).open
    yield Acknowledged("checkpoint", durable=False)
    store.finish(turn, Completed())
    yield Acknowledged("finish")
    store.record(kitchen, [m.user("and to drink?"), m.assistant("milk, too")], owner=ME)
    yield Acknowledged("record")
    store.undo(kitchen, owner=ME)
    yield Acknowledged("undo")
    fork = store.fork(kitchen, owner=ME).id
    yield Acknowledged("fork")
    store.close()
    store = open_it()
    here = store.session(kitchen, owner=ME)
    store.rotate(kitchen, [m.summary("there is milk")], owner=ME, parent=here.window, keep_from=here.length)
    yield Acknowledged("rotate")
    yield from _compactions(store, kitchen)
    turn = started(store, fork, "is it fresh?")
    yield Acknowledged("submit")
    store.submit(fork, "hello?", owner=ME)
    yield Acknowledged("enqueue")
    store.delete(kitchen, owner=ME)
    yield Acknowledged("delete")
    after = store.finish(turn, Failed("no nose"), bodies=[Text("hm")], agents=("default",)).opened
    yield Acknowledged("finish")
    assert after is not None, "what waited runs now"
    store.checkpoint(after, [Text(LAST_WORDS)])
    yield Acknowledged("checkpoint", durable=False)


def _compactions(store: Store, room: SessionId) -> Iterator[Acknowledged]:
    """A turn that makes room for itself, and one that is compacted after its end while another waits."""
    turn = started(store, room, "and bread?")
    yield Acknowledged("submit")
    turn = store.checkpoint(turn, [Text("let me ")]).open
    yield Acknowledged("checkpoint", durable=False)
    turn = _rotated(store, turn, "milk, perhaps bread")
    yield Acknowledged("rotate within a turn")
    compaction = store.finish(turn, Completed(), bodies=[Text("see")], compact=True).opened
    yield Acknowledged("finish and compact")
    assert compaction is not None, "the window has something in it"
    store.submit(room, "and butter?", owner=ME)
    yield Acknowledged("enqueue")
    compaction = _rotated(store, compaction, "milk and bread")
    yield Acknowledged("rotate a compaction")
    after = store.finish(compaction, Completed("shorter now"), agents=("default",)).opened
    yield Acknowledged("finish a compaction")
    assert after is not None, "what waited runs now"
    store.finish(after, Completed(), bodies=[Text("no butter")])
    yield Acknowledged("finish")
    compaction = store.compact(room, owner=ME).opened
    yield Acknowledged("compact")
    assert compaction is not None, "nobody speaks"
    store.finish(compaction, Failed("no words"))
    yield Acknowledged("finish a compaction")


def _rotated(store: Store, turn: OpenTurn, summary: str) -> OpenTurn:
    """The proof of a turn after it has left all but the last message behind."""
    length = store.session(turn.session, owner=ME).length
    said = [m.summary(summary)]
    rotated = store.rotate(turn.session, said, owner=ME, parent=turn.window, keep_from=length - 1, turn=turn)
    assert rotated.open is not None
    return rotated.open


def a_random_day(seed: int) -> Play:
    """Verbs in an order that only the seed knows, with a store that is closed and opened now and then."""
    return lambda open_it: _random_day(open_it, random.Random(seed))


def _random_day(open_it: Open, dice: random.Random) -> Iterator[Acknowledged]:
    store = open_it()
    rooms = [store.create(owner=ME).id]
    yield Acknowledged("create")
    turn: OpenTurn | None = None
    for number in range(30):
        if turn is not None:
            turn, done = _speak(store, turn, dice, number)
        elif dice.random() < 0.1:
            store.close()
            store = open_it()
            continue
        elif dice.random() < 0.4:
            turn, done = started(store, dice.choice(rooms), f"question {number}"), Acknowledged("submit")
        else:
            done = _change(store, rooms, dice, number)
        yield done


def _speak(store: Store, turn: OpenTurn, dice: random.Random, number: int) -> tuple[OpenTurn | None, Acknowledged]:
    match dice.choice(["text", "text", "text", "tool", "finish"]):
        case "text":
            said = Text(f"word {number} " * dice.randint(1, 500))
            return store.checkpoint(turn, [said]).open, Acknowledged("checkpoint", durable=False)
        case "tool":
            call, result = ToolCall(f"c{number}", "look", {"n": number}), ToolResult(f"c{number}", number)
            return store.checkpoint(turn, [call, result]).open, Acknowledged("tool")
        case _:
            store.finish(turn, Completed())
            return None, Acknowledged("finish")


def _change(store: Store, rooms: list[SessionId], dice: random.Random, number: int) -> Acknowledged:
    room = dice.choice(rooms)
    length = store.session(room, owner=ME).length
    match dice.choice(["record", "record", "undo", "fork", "rotate", "delete", "rename"]):
        case "undo" if length:
            store.undo(room, owner=ME)
        case "fork":
            rooms.append(store.fork(room, owner=ME).id)
        case "rotate" if length:
            window = store.session(room, owner=ME).window
            store.rotate(room, [m.summary(f"before {number}")], owner=ME, parent=window, keep_from=length)
        case "delete" if len(rooms) > 1:
            rooms.remove(room)
            store.delete(room, owner=ME)
        case "rename":
            store.rename(room, f"room {number}", owner=ME)
        case _:
            said = [m.user(f"question {number}"), m.assistant(f"answer {number} " * dice.randint(1, 500))]
            store.record(room, said, owner=ME)
    return Acknowledged("change")


# --- the event log --------------------------------------------------------------------------------------------------


class SessionHistory(NamedTuple):
    """One session without ids, which differ between runs."""

    standing: tuple[object, ...]
    lineage: tuple[object, ...]
    messages: tuple[object, ...]
    events: tuple[object, ...]
    waiting: int


StoreHistory = tuple[SessionHistory, ...]


def history_of(store: Store) -> StoreHistory:
    """All sessions of the store, in an order independent of ids. The first reader ends the turns of dead holders."""
    store.reap()
    found = store.list(owner=ME, limit=1000).sessions
    return tuple(sorted((_session_history(store, session.id) for session in found), key=repr))


def _session_history(store: Store, id: SessionId) -> SessionHistory:
    session = store.session(id, owner=ME)
    assert session.running is None, "nobody who could speak is alive"
    events = store.events_after(id, START, owner=ME, limit=1000)
    assert [event.number for event in events.events] == list(range(1, session.last_event + 1))
    ended = [event.turn for event in events.events if isinstance(event.body, TurnEnded)]
    assert len(ended) == len(set(ended)), "a turn ends once"
    return SessionHistory(
        standing=(session.state, session.revision, session.context, session.fence, session.turns, session.title),
        lineage=tuple((window.reason, window.start) for window in store.lineage(id, owner=ME)),
        messages=tuple(_said(message) for message in store.messages(id, owner=ME).messages),
        events=tuple(_happened(event) for event in events.events),
        waiting=len(store.waiting(id, owner=ME)),
    )


def _said(message: Message) -> tuple[object, ...]:
    return message.position, message.role, message.parts, message.partial


def _happened(event: Event) -> tuple[object, ...]:
    match event.body:
        case TextDelta(text=text) | ThoughtDelta(text=text):
            return event.fence, text
        case TurnEnded() as ended:
            return event.fence, ended
        case WindowOpened(reason=reason, length=length):
            return event.fence, reason, length
        case other:
            return event.fence, type(other).__name__
