"""Many sessions that three hosts answer during a fault, and the checks afterwards."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import backstay
from backstay import Address, App, Store, open_store
from backstay.errors import StoreUnavailable
from backstay.model.event import START, Event, EventBody, TailLost, TextDelta, TurnEnded, TurnStarted
from backstay.model.ids import SessionId, TurnId
from backstay.model.turn import Interrupted, Outcome
from backstay.runtime.turn_handle import Turn
from tests.effort import tries
from tests.postgres.hosts.host_programs import ME, WORDS, TurnRecord, toil
from tests.runtime_processes.child_process import Child, first_to_say

HOSTS = 3
SESSIONS = tries(40, 100, 100)
# Long enough that no live host loses its lease on a busy machine, or while a server restarts.
LEASE = 20.0
PATIENCE = 300.0

Endings = dict[SessionId, list[tuple[TurnId, Outcome]]]


class Hosts:
    """Three processes that answer, and note every turn that they begin; a killed one is replaced.

    `struck` holds the turns that were kept open until their host was killed.
    """

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._book = url, TurnRecord(folder)
        self.struck: list[TurnId] = []
        self._stack = ExitStack()
        self._children = [self._begin() for _ in range(HOSTS)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _begin(self) -> Child:
        return self._stack.enter_context(Child(toil, self._url, self._book, LEASE))

    def aim(self) -> None:
        """Have the next running turn kept open by its host until that host is killed."""
        self._book.ask_to_hold()

    def kill_aimed(self) -> None:
        """Kill the host that keeps a turn open, advance the time past its lease, and replace it."""
        host, (turn,) = first_to_say(self._children, "holds")
        host.pass_away()
        self._children[self._children.index(host)] = self._begin()
        self.struck.append(turn)

    def begun(self) -> Counter[TurnId]:
        """How often each turn was begun."""
        return Counter(self._book.begun())


def talk(
    url: str, *, turns: int, strikes: int, strike: Callable[[], None], aim: Callable[[], None] | None = None
) -> Endings:
    """Send this number of turns to every session, strike repeatedly while they are answered, and wait for every end.

    A caller that uses `aim` sends one more turn after each kill, so that there is always another one to hit.
    """
    with open_store(url):
        pass  # The tables are created before any deadline starts.
    return asyncio.run(asyncio.wait_for(_talk(url, turns, strikes, strike, aim), PATIENCE * turns))


async def _talk(
    url: str, number: int, strikes: int, strike: Callable[[], None], aim: Callable[[], None] | None
) -> Endings:
    async with backstay.open(url, notify=False) as app:
        sent = await asyncio.gather(*(_send(app, room, range(number)) for room in range(SESSIONS)))
        turns = [turn for some in sent for turn in some]
        ends = [asyncio.create_task(_outcome(turn)) for turn in turns]
        for done in range(strikes):
            await _until_ended(ends, (done + 1) * number * SESSIONS // (strikes + 2))
            if aim is not None:
                await asyncio.to_thread(aim)
                again, room = divmod(done, SESSIONS)
                (more,) = await _send(app, room, [number + again])
                turns.append(more)
                ends.append(asyncio.create_task(_outcome(more)))
            await asyncio.to_thread(strike)
        endings: Endings = {}
        for turn, outcome in zip(turns, await asyncio.gather(*ends), strict=True):
            endings.setdefault(turn.session, []).append((turn.id, outcome))
        return endings


async def _send(app: App, room: int, turns: Iterable[int]) -> list[Turn]:
    session = await app.session(Address.chat("matrix", "group", chat=f"room {room}"))
    return [
        await session.send(f"question {turn}", request_id=f"room {room} turn {turn}", allow_unserved=True)
        for turn in turns
    ]


async def _outcome(turn: Turn) -> Outcome:
    """The outcome of the turn; retries while the database is unavailable."""
    while True:
        try:
            return await turn.outcome()
        except StoreUnavailable:
            continue


async def _until_ended(ends: "list[asyncio.Task[Outcome]]", number: int) -> None:
    """Wait until this number of turns has ended."""
    waiting = {end for end in ends if not end.done()}
    while len(ends) - len(waiting) < number:
        _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)


# --- the oracle -----------------------------------------------------------------------------------------------------


def check(url: str, endings: Endings, begun: Counter[TurnId], *, server_lost: bool = False) -> None:
    """Check that inputs are stored once and in order, that completed turns have all output, and that turns ran once.

    Only a crashed server may have lost output, which was then written again, with an event for it.
    """
    with open_store(url) as store:
        assert len(store.list(owner=ME, limit=1000).sessions) == len(endings) == SESSIONS
        for session, turns in endings.items():
            events = _story(store, session)
            assert server_lost or not [event for event in events if isinstance(event.body, TailLost)]
            expected: list[tuple[str, str, bool]] = []
            for number, (turn, outcome) in enumerate(turns):
                told = [event.body for event in events if event.turn == turn]
                spoken = _check_turn(told, outcome)
                assert begun[turn] == 1 or (begun[turn] == 0 and isinstance(outcome, Interrupted))
                expected.append(("user", f"question {number}", False))
                expected += [("assistant", spoken, isinstance(outcome, Interrupted))] if spoken else []
            messages = store.messages(session, owner=ME).messages
            assert [(message.role, message.text, message.partial) for message in messages] == expected


def _check_turn(bodies: list[EventBody], outcome: Outcome) -> str:
    """Check the output of the turn: complete, or up to its interruption."""
    assert [body.outcome for body in bodies if isinstance(body, TurnEnded)] == [outcome]
    assert sum(isinstance(body, TurnStarted) for body in bodies) == 1
    spoken = "".join(body.text for body in bodies if isinstance(body, TextDelta))
    if isinstance(outcome, Interrupted):
        assert "".join(WORDS).startswith(spoken)
    else:
        assert spoken == "".join(WORDS)
    return spoken


def _story(store: Store, session: SessionId) -> list[Event]:
    page = store.events_after(session, START, owner=ME, limit=1000)
    assert [event.number for event in page.events] == list(range(1, store.session(session, owner=ME).last_event + 1))
    return list(page.events)
