"""A store of plain lists and dicts: a model of the visible behaviour of every store.

It runs the same verbs and raises the same errors, without fences, segments, rows or indexes: a window is a list of
messages, a queue a list of turns. Ids are created by the real store, and set by the code that compares the two.
"""

from collections.abc import Collection, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from backstay.errors import (
    Conflict,
    InvalidPayload,
    LeaseLost,
    NotFound,
    NothingToDo,
    RequestMismatch,
    RevisionMismatch,
    SessionBusy,
    SessionEnded,
    SessionExpired,
)
from backstay.model.ids import MessageId, SessionId, TurnId, WindowId
from backstay.model.turn import COMPACTOR
from backstay.testing import ManualClock

# A revision that no caller has seen yet.
_ANOTHER = -1

Outcome = Literal["completed", "cancelled", "failed", "interrupted"]
State = Literal["open", "ended", "expired", "deleted"]
Finished = list[tuple[str, list[str]]]
Step = tuple[Literal["text", "call", "return", "steer"], str]


@dataclass(eq=False)
class Said:
    """A message: its text, and where it was written."""

    role: str
    words: list[str]
    turn: "PlainTurn | None"
    home: "PlainSession"
    partial: bool = False
    id: MessageId | None = None


@dataclass(eq=False)
class PlainTurn:
    """A turn. `steps_taken` is the output of its agent so far; `record` its finished messages."""

    session: "PlainSession"
    agent: str | None
    words: list[str]
    place: tuple[int, int]
    created_at: int
    steer: bool = False
    held: bool = False
    record: Finished | None = None
    state: Literal["waiting", "running", "ended"] = "waiting"
    outcome: Outcome | None = None
    cancelling: bool = False
    holder: str = ""
    lease_until: int = 0
    input: Said | None = None
    steps_taken: list[Step] = field(default_factory=list)
    taken_by: "PlainTurn | None" = None
    took: "list[PlainTurn]" = field(default_factory=list)
    id: TurnId | None = None


class Spot(NamedTuple):
    """A position in a window: before the message with this number."""

    window: "PlainWindow"
    position: int


@dataclass(eq=False)
class PlainWindow:
    """A window. If it begins with a summary, that replaces the messages `behind` it."""

    reason: str
    parent: "PlainWindow | None"
    messages: list[Said]
    start: int
    behind: Spot | None = None
    compacted: "PlainWindow | None" = None
    id: WindowId | None = None


@dataclass(eq=False)
class PlainSession:
    """A session, its windows in the order they were opened, and its queue."""

    owner: str
    windows: list[PlainWindow]
    window: PlainWindow
    created_at: int
    touched_at: int
    source: "PlainSession | None" = None
    state: State = "open"
    running: PlainTurn | None = None
    queue: list[PlainTurn] = field(default_factory=list)
    accepted: list[PlainTurn] = field(default_factory=list)
    turns: int = 0
    activity: int = 0
    title: str | None = None
    title_by: str | None = None
    pinned: bool = False
    idle: int | None = None
    absolute: int | None = None
    ended_at: int = 0
    revision: int = 0
    id: SessionId | None = None

    @property
    def messages(self) -> list[Said]:
        return self.window.messages

    @property
    def ready(self) -> list[PlainTurn]:
        """The waiting turns that are not held."""
        return [turn for turn in self.queue if not turn.held]

    @property
    def root(self) -> "PlainSession":
        return self if self.source is None else self.source.root

    def expires_at(self) -> int | None:
        idle = None if self.idle is None else self.touched_at + self.idle
        absolute = None if self.absolute is None else self.created_at + self.absolute
        return min([limit for limit in (idle, absolute) if limit is not None], default=None)

    def shown_expiry(self, now: int) -> int | None:
        """The shown expiry: never in the past while a turn runs or waits."""
        limit = self.expires_at()
        return limit if limit is None or self.state_at(now) != "open" else max(limit, now)

    def state_at(self, now: int) -> State:
        limit = self.expires_at()
        lapsed = limit is not None and limit <= now and self.running is None and not self.queue
        return "expired" if self.state == "open" and lapsed else self.state


class Request(NamedTuple):
    """A request of an owner: its content, the names of its destination, and its turn."""

    body: object
    sent_to: frozenset[str | PlainSession]
    turn: PlainTurn


class Removed(NamedTuple):
    """What a deletion removed and kept."""

    messages: int
    turns: int
    kept_messages: int


def chain(window: PlainWindow, until: int | None = None) -> Iterator[Spot]:
    """The window and those that its summaries replace, each with the position up to which it counts."""
    spot: Spot | None = Spot(window, len(window.messages) if until is None else until)
    while spot is not None:
        yield spot
        spot = spot.window.behind


def reach(window: PlainWindow) -> list[Said]:
    """Every message that can be reached from a window."""
    return [said for spot in chain(window) for said in spot.window.messages[: spot.position]]


def spoken(window: PlainWindow, until: int) -> list[Spot]:
    """The positions of all messages of turns, oldest first, through all compactions."""
    before = [] if window.behind is None else spoken(*window.behind)
    return before + [Spot(window, at) for at in range(until) if window.messages[at].turn is not None]


def last_turn(window: PlainWindow, until: int) -> tuple[PlainTurn, Spot] | None:
    """The last turn among a window's first messages, and the position before it."""
    places = spoken(window, until)
    turns = [place.window.messages[place.position].turn for place in places]
    last = turns[-1] if turns else None
    if last is None:
        return None
    first = len(turns)
    while first and turns[first - 1] is last:
        first -= 1
    return last, places[first]


def messages_of_steps(steps_taken: Sequence[Step], *, partial: bool) -> list[tuple[str, list[str], bool]]:
    """The output of a turn as messages: role, words, and whether it was cut off."""
    messages: list[tuple[str, list[str]]] = []
    steering: list[str] = []
    calls: set[str] = set()
    joined = False
    for kind, word in steps_taken:
        if kind == "steer":
            steering.append(word)
        else:
            role = "tool" if kind == "return" else "assistant"
            if not joined or messages[-1][0] != role:
                messages.append((role, []))
            joined = True
            messages[-1][1].extend([word] if kind == "text" else [])
            (calls.add if kind == "call" else calls.discard)(word)
        if steering and not calls:
            messages += [("user", [heard]) for heard in steering]
            steering, joined = [], False
    messages += [("user", [heard]) for heard in steering]
    answers = [at for at, (role, _) in enumerate(messages) if role == "assistant"]
    cut = answers[-1] if partial and answers else None
    return [(role, words, at == cut) for at, (role, words) in enumerate(messages)]


class PlainStore:
    """The verbs, on lists. Holders are given by name; `dead` has the names of the closed ones."""

    def __init__(self, clock: ManualClock, lease_seconds: float) -> None:
        self.clock, self.lease_ms = clock, round(lease_seconds * 1000)
        self.sessions: list[PlainSession] = []
        self.addresses: dict[tuple[str, str], tuple[PlainSession, int]] = {}
        self.requests: dict[tuple[str, str], Request] = {}
        self.existing: list[Said] = []
        self.dead: set[str] = set()
        self._places = 0

    # --- leases -----------------------------------------------------------------------------------------------------

    def gone(self, turn: PlainTurn) -> bool:
        return turn.holder in self.dead or turn.lease_until <= self.clock.boot()

    def meet(self, session: PlainSession) -> list[PlainTurn]:
        """A read ends the turn of a dead holder."""
        turn = session.running
        if turn is None or not self.gone(turn):
            return []
        self._end(session, "cancelled" if turn.cancelling else "interrupted")
        self._go_on(session, ())
        session.revision = _ANOTHER
        return [turn]

    def reap(self) -> list[PlainTurn]:
        return [turn for session in self.sessions for turn in self.meet(session)]

    # --- sessions ---------------------------------------------------------------------------------------------------

    def create(self, owner: str, idle: int | None = None, absolute: int | None = None) -> PlainSession:
        now = self.clock.now()
        window = PlainWindow("first", None, [], 0)
        session = PlainSession(owner, [window], window, now, now, idle=idle, absolute=absolute)
        self.sessions.append(session)
        return session

    def resolve(
        self, address: str, owner: str, idle: int | None, absolute: int | None
    ) -> tuple[PlainSession, str, int]:
        session, how, generation = self._enter(address, owner, idle, absolute)
        if how != "resumed" or self.clock.now() - session.touched_at >= (1_000 if session.idle is None else 1):
            self._touch(session)
        return session, how, generation

    def touch(self, session: PlainSession) -> None:
        self.meet(session)
        self._require_open(session)
        self._touch(session)

    def pin(self, session: PlainSession, pinned: bool) -> None:
        self.meet(session)
        self._require_open(session)
        session.pinned = pinned

    def rename(self, session: PlainSession, title: str | None, *, by_agent: bool) -> None:
        self.meet(session)
        self._require_open(session)
        if not by_agent or session.title_by != "person":
            by = "agent" if by_agent else "person"
            session.title, session.title_by = title, by if title else None

    def point(self, address: str, session: PlainSession) -> None:
        self.meet(session)
        self._require_open(session)
        to, generation = self.addresses.get((session.owner, address), (None, 0))
        if to is not session:
            self.addresses[session.owner, address] = session, generation + 1

    def end(self, session: PlainSession) -> None:
        self.meet(session)
        state = session.state_at(self.clock.now())
        if state == "expired":
            raise SessionExpired
        if state == "ended":
            return
        if session.running is not None:
            self._end(session, "cancelled")
        for turn in list(session.queue):
            self._end_waiting(turn, "cancelled")
        self._close(session, "ended")

    def delete(self, session: PlainSession) -> Removed:
        self.sessions.remove(session)
        session.state = "deleted"
        self.addresses = {key: (to, at) for key, (to, at) in self.addresses.items() if to is not session}
        self.requests = {key: one for key, one in self.requests.items() if one.turn.session is not session}
        needed = {said for alive in self.sessions for window in alive.windows for said in reach(window)}
        stays = [said for said in self.existing if said in needed]
        gone, self.existing = len(self.existing) - len(stays), stays
        kept = [said for said in stays if said.home.state == "deleted" and said.home.root is session.root]
        return Removed(gone, len(session.accepted), len(kept))

    def collect(self, keep_closed_for: float | None) -> tuple[int, int, int]:
        now = self.clock.now()
        lapsed = [one for one in self.sessions if one.state == "open" and one.state_at(now) == "expired"]
        for session in lapsed:
            self._close(session, "expired")
        if keep_closed_for is None:
            return len(lapsed), 0, 0
        moment = now - round(keep_closed_for * 1000)
        old = [one for one in self.sessions if one.state != "open" and one.ended_at < moment]
        return len(lapsed), len(old), sum(self.delete(session).messages for session in old)

    # --- turns ------------------------------------------------------------------------------------------------------

    def submit(
        self,
        to: str | PlainSession,
        words: list[str],
        *,
        owner: str,
        agent: str,
        if_busy: str,
        holder: str | None,
        request: str | None = None,
    ) -> tuple[PlainTurn, PlainTurn | None]:
        """Submit an input; returns its turn, and the turn that started, if any. Without a holder none starts."""
        body = ("submit", words)
        if request is not None and (owner, request) in self.requests:
            return self._repeated(self.requests[owner, request], body, to, owner), None
        session = self._target(to, owner)
        turn, opened = self._send(session, words, agent, if_busy, holder)
        if request is not None:
            self.requests[owner, request] = Request(body, self._names(to, owner), turn)
        return turn, opened

    def accepted(self, owner: str, request: str, words: list[str]) -> bool:
        """Whether a request with this id was accepted, and its turn still exists."""
        first = self.requests.get((owner, request))
        return first is not None and first.body == ("submit", words)

    def record(self, session: PlainSession, said: Finished, *, if_busy: str, expect_revision: int | None) -> PlainTurn:
        self._target(session, session.owner)
        self._require_revision(session, expect_revision)
        busy = session.running is not None or bool(session.ready)
        if busy and if_busy == "reject":
            raise SessionBusy
        self._touch(session)
        turn = self._new_turn(session, None, said[0][1], front=False)
        turn.record = said
        session.queue.append(turn)
        if not busy:
            self._go_on(session, ())
        return turn

    def claimable(self, agents: Collection[str]) -> list[PlainSession]:
        """The sessions whose next turn is the oldest of all that one of these agents could answer."""
        self.reap()
        heads = [one.ready[0] for one in self.sessions if one.ready and one.running is None]
        waiting = [turn for turn in heads if turn.agent in agents]
        oldest = min((turn.created_at for turn in waiting), default=None)
        return [turn.session for turn in waiting if turn.created_at == oldest]

    def claim(self, agents: Collection[str], session: PlainSession, holder: str) -> PlainTurn | None:
        self.meet(session)
        return self._go_on(session, agents, holder)

    def renew(self, turn: PlainTurn) -> None:
        self._require_held(turn)
        turn.lease_until = self.clock.boot() + self.lease_ms

    def checkpoint(self, turn: PlainTurn, steps: Sequence[Step], take_steering: bool) -> list[PlainTurn]:
        self._require_held(turn)
        turn.steps_taken += steps
        taken = [one for one in turn.session.ready if one.steer] if take_steering else []
        for one in taken:
            turn.session.queue.remove(one)
            one.taken_by = turn
            turn.took.append(one)
            turn.steps_taken.append(("steer", one.words[0]))
        turn.lease_until = self.clock.boot() + self.lease_ms
        if steps or taken:
            turn.session.touched_at = max(turn.session.touched_at, self.clock.now())
        return taken

    def finish(
        self,
        turn: PlainTurn,
        outcome: Outcome,
        steps: Sequence[Step],
        agents: Collection[str],
        holder: str,
        *,
        compact: bool = False,
    ) -> tuple[int, PlainTurn | None]:
        """The length of the window after the turn's own messages, and the turn that was opened then, if any."""
        self._require_held(turn)
        turn.steps_taken += steps
        self._end(turn.session, outcome)
        length = len(turn.session.messages)
        if compact:
            return length, self._compact(turn.session, holder)
        return length, self._go_on(turn.session, agents, holder)

    def compact(self, session: PlainSession, holder: str) -> tuple[PlainTurn, PlainTurn | None]:
        """The compaction that runs now, and the same if it was opened just now for the holder."""
        self.meet(session)
        self._require_open(session)
        if session.running is not None:
            if session.running.agent == COMPACTOR:
                return session.running, None
            raise SessionBusy
        opened = self._compact(session, holder)
        return opened, opened

    def cancel(self, turn: PlainTurn, take: bool) -> None:
        self.meet(turn.session)
        if turn.state == "running" and take:
            self._end(turn.session, "cancelled")
            self._go_on(turn.session, ())
        elif turn.state == "running":
            turn.cancelling = True
        elif turn.state == "waiting":
            self._withdraw(turn)

    def withdraw(self, turn: PlainTurn) -> None:
        self._require_waiting(turn)
        self._withdraw(turn)

    def release(self, turn: PlainTurn) -> None:
        self.meet(turn.session)
        if turn.held:
            turn.held = False
            self._go_on(turn.session, ())

    def edit_waiting(self, turn: PlainTurn, words: list[str]) -> None:
        self._require_waiting(turn)
        if turn.record is not None:
            raise Conflict
        turn.words = words

    # --- history ----------------------------------------------------------------------------------------------------

    def undo(self, session: PlainSession, expect_revision: int | None) -> None:
        self._require_idle(session, expect_revision)
        found = last_turn(session.window, len(session.messages))
        if found is None:
            raise NothingToDo
        self._cut(session, found[1], "undo")

    def redo(self, session: PlainSession, expect_revision: int | None) -> None:
        self._require_idle(session, expect_revision)
        here = session.window
        if here.reason != "undo" or here.parent is None or len(here.messages) > here.start:
            raise NothingToDo
        session.window = here.parent

    def retry(self, session: PlainSession, agent: str | None, holder: str | None) -> tuple[PlainTurn, PlainTurn | None]:
        self._require_idle(session, None)
        found = last_turn(session.window, len(session.messages))
        if found is None:
            raise NothingToDo
        turn, spot = found
        said = spot.window.messages[spot.position]
        if said.role != "user":
            raise NothingToDo
        agent = agent or _agent_of(turn)
        self._cut(session, spot, "retry")
        return self._send(session, said.words, agent, "enqueue", holder)

    def edit(
        self, session: PlainSession, message: Said, words: list[str], agent: str | None, holder: str | None
    ) -> tuple[PlainTurn, PlainTurn | None]:
        self._require_idle(session, None)
        place = _find(session.window, message)
        if message.role != "user":
            raise InvalidPayload
        found = last_turn(place.window, place.position + 1)
        assert found is not None, "a person's message belongs to a turn"
        turn, spot = found
        agent = agent or _agent_of(turn)
        self._cut(session, spot, "edit")
        return self._send(session, words, agent, "enqueue", holder)

    def fork(self, session: PlainSession, at: Said | None) -> PlainSession:
        self.meet(session)
        return self._fork(session, at)

    def rotate(
        self, session: PlainSession, parent: PlainWindow, keep_from: int, summary: list[str], turn: PlainTurn | None
    ) -> bool:
        if turn is not None:
            self._require_held(turn)
        else:
            self.meet(session)
            self._require_open(session)
            if session.running is not None:
                raise SessionBusy
        if session.window is not parent:
            if parent.compacted is None or parent not in session.windows:
                raise LeaseLost
            return False
        if not 0 <= keep_from <= len(parent.messages):
            raise InvalidPayload
        if keep_from == 0:
            return False
        said = self._exist([Said("summary", summary, None, session)])
        kept = parent.messages[keep_from:]
        window = PlainWindow("compaction", parent, said + kept, len(kept) + 1, behind=Spot(parent, keep_from))
        parent.compacted = window
        self._open(session, window)
        return True

    # --- documents --------------------------------------------------------------------------------------------------

    def adopt(self, session: PlainSession, owner: str, *, addresses: bool) -> PlainSession:
        """Import the session's document beside it, as a copy.

        Its waiting turns are held, a running turn is interrupted, and its request ids are not recognised here. An
        address points to it if that was requested and the address was free.
        """
        assert session.source is None, "a fork's copy would bring its ancestors with it"
        copy = deepcopy(session)
        copy.owner, copy.id, copy.revision = owner, None, _ANOTHER
        self.sessions.append(copy)
        copied = dict.fromkeys(said for window in copy.windows for said in window.messages)
        for window in copy.windows:
            window.id = None
        for said in self._exist(list(copied)):
            said.id = None
        for turn in copy.queue:
            # Turns that may start are claimed in the order of their arrival in this store.
            turn.held, turn.created_at = True, self.clock.now()
        if copy.running is not None:
            self._end(copy, "cancelled" if copy.running.cancelling else "interrupted")
        for (whose, address), (to, generation) in list(self.addresses.items()):
            if addresses and whose == session.owner and to is session:
                self.addresses.setdefault((owner, address), (copy, generation))
        return copy

    # --- internal ---------------------------------------------------------------------------------------------------

    def _enter(self, address: str, owner: str, idle: int | None, absolute: int | None) -> tuple[PlainSession, str, int]:
        session, generation = self.addresses.get((owner, address), (None, 0))
        if session is not None:
            self.meet(session)
            if session.state_at(self.clock.now()) == "open" and (idle is not None or absolute is not None):
                session.idle, session.absolute = idle, absolute
            if session.state_at(self.clock.now()) == "open":
                return session, "resumed", generation
            if session.state == "open":
                self._close(session, "expired")
        how = "created" if session is None else "replaced"
        new = self.create(owner, idle, absolute)
        self.addresses[owner, address] = new, generation + 1
        return new, how, generation + 1

    def _target(self, to: str | PlainSession, owner: str) -> PlainSession:
        if isinstance(to, str):
            return self._enter(to, owner, None, None)[0]
        if to.owner != owner or to.state == "deleted":
            raise NotFound
        self.meet(to)
        self._require_open(to)
        return to

    def _send(
        self, session: PlainSession, words: list[str], agent: str, if_busy: str, holder: str | None
    ) -> tuple[PlainTurn, PlainTurn | None]:
        busy = session.running is not None
        if busy and if_busy == "reject":
            raise SessionBusy
        if busy and if_busy == "fork":
            session, busy = self._fork(session, None), False
        self._touch(session)
        turn = self._new_turn(session, agent, words, front=if_busy in ("steer", "replace"))
        turn.steer = busy and if_busy == "steer"
        if busy and if_busy == "replace" and session.running is not None:
            session.running.cancelling = True
        session.queue.append(turn)
        session.queue.sort(key=lambda waiting: waiting.place)
        opened = None if busy or holder is None else self._go_on(session, (agent,), holder)
        return turn, opened

    def _new_turn(self, session: PlainSession, agent: str | None, words: list[str], *, front: bool) -> PlainTurn:
        self._places += 1
        turn = PlainTurn(session, agent, words, (0 if front else 1, self._places), self.clock.now())
        session.accepted.append(turn)
        return turn

    def _go_on(self, session: PlainSession, agents: Collection[str], holder: str = "") -> PlainTurn | None:
        while session.ready and session.running is None:
            turn = session.ready[0]
            if turn.record is not None:
                session.queue.remove(turn)
                session.messages.extend(self._exist([Said(role, words, turn, session) for role, words in turn.record]))
                turn.state, turn.outcome = "ended", "completed"
                session.turns += 1
            elif turn.agent in agents:
                session.queue.remove(turn)
                self._start(session, turn, holder)
                return turn
            else:
                return None
        return None

    def _start(self, session: PlainSession, turn: PlainTurn, holder: str) -> None:
        (turn.input,) = self._exist([Said("user", turn.words, turn, session)])
        session.messages.append(turn.input)
        self._hold(session, turn, holder)

    def _compact(self, session: PlainSession, holder: str) -> PlainTurn:
        if not session.messages:
            raise NothingToDo
        turn = self._new_turn(session, COMPACTOR, [], front=True)
        self._hold(session, turn, holder)
        return turn

    def _hold(self, session: PlainSession, turn: PlainTurn, holder: str) -> None:
        turn.state, turn.steer, turn.holder = "running", False, holder
        turn.lease_until = self.clock.boot() + self.lease_ms
        session.running = turn

    def _end(self, session: PlainSession, outcome: Outcome) -> None:
        turn = session.running
        assert turn is not None
        session.messages.extend(
            self._exist(
                [
                    Said(role, words, turn, session, partial)
                    for role, words, partial in messages_of_steps(turn.steps_taken, partial=outcome != "completed")
                ]
            )
        )
        for one in (turn, *turn.took):
            one.state, one.outcome = "ended", outcome
        session.running = None
        session.turns += turn.agent != COMPACTOR
        session.touched_at = max(session.touched_at, self.clock.now())

    def _withdraw(self, turn: PlainTurn) -> None:
        if turn.taken_by is not None:
            raise NothingToDo
        self._end_waiting(turn, "cancelled")
        self._go_on(turn.session, ())

    def _end_waiting(self, turn: PlainTurn, outcome: Outcome) -> None:
        turn.session.queue.remove(turn)
        turn.state, turn.outcome, turn.held = "ended", outcome, False

    def _fork(self, session: PlainSession, at: Said | None) -> PlainSession:
        spot = Spot(session.window, len(session.messages))
        if at is not None:
            place = _find(session.window, at)
            spot = Spot(place.window, place.position + 1)
        last = last_turn(*spot)
        if last is not None and last[0] is session.running:
            if at is not None:
                raise Conflict
            spot = last[1]
        fork = self.create(session.owner)
        fork.source, fork.title, fork.title_by = session, session.title, "agent" if session.title else None
        fork.windows = [_cut(spot, "fork", session.window)]
        fork.window = fork.windows[0]
        return fork

    def _cut(self, session: PlainSession, spot: Spot, reason: str) -> None:
        self._open(session, _cut(spot, reason, session.window))

    def _open(self, session: PlainSession, window: PlainWindow) -> None:
        session.windows.append(window)
        session.window = window

    def _exist(self, said: list[Said]) -> list[Said]:
        self.existing += said
        return said

    def _touch(self, session: PlainSession) -> None:
        session.activity += 1
        session.touched_at = max(session.touched_at, self.clock.now())

    def _close(self, session: PlainSession, state: State) -> None:
        session.state, session.ended_at = state, self.clock.now()

    def _repeated(self, first: Request, body: object, to: str | PlainSession, owner: str) -> PlainTurn:
        """The turn of a request with the same content, in a conversation that is connected with the first one."""
        there = self.addresses.get((owner, to), (None, 0))[0] if isinstance(to, str) else to
        here = first.turn.session
        forked = there is not None and (there.source is here or here.source is there)
        connected = first.sent_to & self._names(to, owner) or there is here or forked
        if first.body != body or not connected:
            raise RequestMismatch
        return first.turn

    def _names(self, to: str | PlainSession, owner: str) -> frozenset[str | PlainSession]:
        """The names of a conversation: the address or session that was named, and all addresses of its session."""
        session = self.addresses.get((owner, to), (None, 0))[0] if isinstance(to, str) else to
        leading = [address for (whose, address), (at, _) in self.addresses.items() if whose == owner and at is session]
        return frozenset([to, *leading] if session is not None else [to])

    def _require_open(self, session: PlainSession) -> None:
        state = session.state_at(self.clock.now())
        if state == "ended":
            raise SessionEnded
        if state == "expired":
            raise SessionExpired

    def _require_idle(self, session: PlainSession, expect_revision: int | None) -> None:
        self.meet(session)
        self._require_open(session)
        if session.running is not None or session.queue:
            raise SessionBusy
        self._require_revision(session, expect_revision)

    def _require_revision(self, session: PlainSession, expected: int | None) -> None:
        if expected is not None and expected != session.revision:
            raise RevisionMismatch

    def _require_held(self, turn: PlainTurn) -> None:
        """The holder may write until another process ends its turn, however late that is."""
        if turn.state != "running" or turn.session.state == "deleted":
            raise LeaseLost

    def _require_waiting(self, turn: PlainTurn) -> None:
        self.meet(turn.session)
        if turn.state == "running":
            raise SessionBusy
        if turn.state == "ended" or turn.taken_by is not None:
            raise NothingToDo


def _cut(spot: Spot, reason: str, parent: PlainWindow) -> PlainWindow:
    return PlainWindow(reason, parent, spot.window.messages[: spot.position], spot.position, behind=spot.window.behind)


def _find(window: PlainWindow, message: Said) -> Spot:
    """The position of a message: in this window, or in one that its summary replaces."""
    for spot in chain(window):
        if message in spot.window.messages[: spot.position]:
            return Spot(spot.window, spot.window.messages.index(message))
    raise NotFound


def _agent_of(turn: PlainTurn) -> str:
    if turn.agent is None or turn.session.state == "deleted":
        raise InvalidPayload
    return turn.agent
