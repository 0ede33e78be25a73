"""A hundred sessions that three hosts answer while something goes wrong, and what must be true afterwards."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable
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
from backstay.runtime.turn import TurnHandle
from tests.postgres.programs import ME, WORDS, toil
from tests.runtime_processes.child import Child

HOSTS = 3
SESSIONS = 100
LEASE = 2.0
PATIENCE = 300.0

Endings = dict[SessionId, list[tuple[TurnId, Outcome]]]


class Hosts:
    """Three processes that answer, and note every turn that they begin; whoever is killed is replaced."""

    def __init__(self, url: str, diary: Path) -> None:
        self._url, self._diary = url, diary
        self._stack = ExitStack()
        self._children = [self._begin() for _ in range(HOSTS)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _begin(self) -> Child:
        return self._stack.enter_context(Child(toil, self._url, self._diary, LEASE))

    def kill_one(self) -> None:
        """Kill whichever of them began a turn last, so that it is at work, and put another in its place."""
        alive = {child.pid: place for place, child in enumerate(self._children)}
        place = next((alive[host] for host, _ in reversed(self._entries()) if host in alive), 0)
        self._children[place].kill()
        self._children[place] = self._begin()

    def begun(self) -> Counter[str]:
        """How often each turn was begun."""
        return Counter(turn for _, turn in self._entries())

    def _entries(self) -> list[tuple[int, str]]:
        """Who began which turn, in the order of the diary."""
        lines = [line.split() for line in self._diary.read_text().splitlines()]
        return [(int(host), turn) for host, turn in lines]


def talk(url: str, *, turns: int, strikes: int, strike: Callable[[], None]) -> Endings:
    """Send so many turns to every session, strike again and again while they are answered, and wait for every end."""
    with open_store(url):
        pass  # The tables are made before anybody is in a hurry.
    return asyncio.run(asyncio.wait_for(_talk(url, turns, strikes, strike), PATIENCE * turns))


async def _talk(url: str, number: int, strikes: int, strike: Callable[[], None]) -> Endings:
    async with backstay.open(url, prompt=False, lease_seconds=LEASE) as app:
        sent = await asyncio.gather(*(_send(app, room, number) for room in range(SESSIONS)))
        turns = [turn for some in sent for turn in some]
        ends = [asyncio.create_task(_outcome(turn)) for turn in turns]
        for done in range(1, strikes + 1):
            await _until_ended(ends, done * len(ends) // (strikes + 2))
            await asyncio.to_thread(strike)
        endings: Endings = {}
        for turn, outcome in zip(turns, await asyncio.gather(*ends), strict=True):
            endings.setdefault(turn.session, []).append((turn.id, outcome))
        return endings


async def _send(app: App, room: int, turns: int) -> list[TurnHandle]:
    session = await app.session(Address.chat("matrix", "group", chat=f"room {room}"))
    return [await session.send(f"question {turn}", request_id=f"{turn}") for turn in range(turns)]


async def _outcome(turn: TurnHandle) -> Outcome:
    """How the turn ended, asked again while the database is away."""
    while True:
        try:
            return await turn.outcome()
        except StoreUnavailable:
            continue


async def _until_ended(ends: "list[asyncio.Task[Outcome]]", number: int) -> None:
    """Until so many turns have ended."""
    waiting = {end for end in ends if not end.done()}
    while len(ends) - len(waiting) < number:
        _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)


# --- the oracle -----------------------------------------------------------------------------------------------------


def check(url: str, endings: Endings, begun: Counter[str], *, server_lost: bool = False) -> None:
    """Every input once, in order, with its whole answer or what was stored of it; every turn begun and ended once.

    Only a server that was lost may have forgotten words, and then the story says so.
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
                cut = isinstance(outcome, Interrupted) or any(isinstance(body, TailLost) for body in told)
                assert begun[turn] == 1 or (begun[turn] == 0 and isinstance(outcome, Interrupted))
                expected.append(("user", f"question {number}", False))
                expected += [("assistant", spoken, cut)] if spoken else []
            messages = store.messages(session, owner=ME).messages
            assert [(message.role, message.text, message.partial) for message in messages] == expected


def _check_turn(story: list[EventBody], outcome: Outcome) -> str:
    """What was said in the turn: all, or as much as its end or a lost tail left of it."""
    assert [body.outcome for body in story if isinstance(body, TurnEnded)] == [outcome]
    assert sum(isinstance(body, TurnStarted) for body in story) == 1
    spoken = "".join(body.text for body in story if isinstance(body, TextDelta))
    if any(isinstance(body, TailLost) for body in story):
        ahead = iter(WORDS)
        assert all(any(word == said for word in ahead) for said in re.findall(r"\w+ ?", spoken)), spoken
    elif isinstance(outcome, Interrupted):
        assert "".join(WORDS).startswith(spoken)
    else:
        assert spoken == "".join(WORDS)
    return spoken


def _story(store: Store, session: SessionId) -> list[Event]:
    page = store.events_after(session, START, owner=ME, limit=1000)
    assert [event.number for event in page.events] == list(range(1, store.session(session, owner=ME).last_event + 1))
    return list(page.events)
