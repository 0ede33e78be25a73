"""The store under test beside a plain model: both get the same verbs, and all their reads are compared."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from msgspec.structs import replace

from backstay import Store, Text, open_store
from backstay.errors import BackstayError, NotFound
from backstay.model.documents.document import Export, ExportedEvent
from backstay.model.event import START, Cursor, TurnHeld
from backstay.model.ids import MessageId, SessionId, TurnId, WindowId
from backstay.model.message import Message
from backstay.model.session import SessionInfo
from backstay.model.turn import Accepted, OpenTurn
from backstay.testing import ManualClock
from tests.contract.documents.exports import nameless
from tests.databases import Place
from tests.store.plain_store import PlainSession, PlainStore, PlainTurn, PlainWindow, Said, reach

P = TypeVar("P")
R = TypeVar("R")

LEASE = 30.0
HANDLES = 3
OWNERS = ("ada", "bob")
AGENTS = ("poet", "critic")
TRAVELLER = "carol"
# Every so many reads the events of each session are followed from the last cursor, across folds.
FOLLOW = 3
# Every so many reads all windows and all events are read again.
LOOK_BACK = 8


class Seen:
    """The result of the last read of a session, to compare it with the next."""

    def __init__(self) -> None:
        self.revision = self.context = 0
        self.visible: tuple[object, ...] = ()
        self.read: tuple[WindowId, list[MessageId]] | None = None
        self.cursor: Cursor = START


class TwoStores:
    """A plain store, and several handles on a real one. The plain store takes the ids of the real one."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.clock = ManualClock()
        self.plain = PlainStore(self.clock, LEASE)
        self.stores: list[Store] = [self._open() for _ in range(HANDLES)]
        self._folder = tempfile.TemporaryDirectory()
        self._elsewhere = open_store(Path(self._folder.name) / "elsewhere.db", clock=self.clock)
        self.proofs: dict[PlainTurn, OpenTurn] = {}
        self.stale: list[OpenTurn] = []
        self._seen: dict[PlainSession, Seen] = {}
        self._ended: set[PlainTurn] = set()
        self._looks = 0

    def _open(self) -> Store:
        return open_store(self._place, clock=self.clock, lease_seconds=LEASE)

    def close(self) -> None:
        for store in (*self.stores, self._elsewhere):
            store.close()
        self._folder.cleanup()

    # --- both stores ------------------------------------------------------------------------------------------------

    def tell(self, plain: Callable[[], P], real: Callable[[], R]) -> tuple[P, R] | None:
        """The results of both stores; None if both rejected the verb with the same error."""
        try:
            expected = plain()
        except BackstayError as error:
            refusal = error
        else:
            return expected, real()
        with pytest.raises(type(refusal)) as refused:
            real()
        assert refused.type is type(refusal)
        return None

    def kill(self, handle: int) -> None:
        """A holder dies, and another takes its place; no process has noticed yet."""
        self.plain.dead.add(self.stores[handle].worker)
        self.stores[handle].close()
        self.stores[handle] = self._open()

    def holder(self, turn: PlainTurn) -> Store:
        """The handle that holds the turn, or any if that one is dead: a proof is valid in any handle."""
        alive = [store for store in self.stores if store.worker == turn.holder]
        return (alive or self.stores)[0]

    def cursor(self, session: PlainSession) -> Cursor:
        """The number up to which the session's events were followed."""
        return self._seen[session].cursor

    def travel(self, session: PlainSession, *, addresses: bool) -> None:
        """A session is imported into another store, is equal there, and leaves nothing when it is deleted."""
        document = self.stores[0].export(id_of(session), owner=session.owner)
        copy = Export.from_json(document.to_json())
        answer = self._elsewhere.import_session(copy, owner=TRAVELLER, addresses=addresses)
        imported, led = answer.session, tuple(address.spelling for address in document.addresses)
        assert (answer.addresses, answer.dropped) == ((led, ()) if addresses else ((), led))
        if all(turn.state != "running" for turn in document.turns):
            expected = self._as_imported(document, addresses=addresses)
            assert nameless(self._elsewhere.export(imported.id, owner=TRAVELLER)) == nameless(expected)
        for (_, request), first in self.plain.requests.items():
            if first.turn.session is session:
                found = self._elsewhere.requested(request, owner=TRAVELLER)
                assert (found is not None) == (addresses and not answer.copied)
        gone = self._elsewhere.delete(imported.id, owner=TRAVELLER)
        assert gone.messages >= sum(len(window.messages) for window in document.windows)
        assert (gone.windows, gone.turns, gone.kept_messages) == (len(document.windows), len(document.turns), 0)

    def _as_imported(self, document: Export, *, addresses: bool) -> Export:
        """The result of an import into another store without running turns: waiting turns are held, with events."""
        facts, turns = document.session, tuple(replace(turn, held=turn.state == "waiting") for turn in document.turns)
        held = [new.id for new, old in zip(turns, document.turns, strict=True) if new.held and not old.held]
        last = facts.last_event + len(held)
        told = tuple(
            ExportedEvent(
                number=number, last=number, fence=facts.fence, at=self.clock.now(), turn=turn, body=TurnHeld()
            )
            for number, turn in enumerate(held, facts.last_event + 1)
        )
        facts = replace(facts, last_event=last, revision=facts.revision + bool(held))
        if not addresses:
            facts = replace(facts, family=None, place=None)
        return replace(document, session=facts, turns=turns, events=document.events + told)

    def adopt(self, handle: int, session: PlainSession, owner: str, *, addresses: bool) -> None:
        """A session's document is imported into the store that it is from."""
        store = self.stores[handle]
        document = store.export(id_of(session), owner=session.owner)
        copy = self.plain.adopt(session, owner, addresses=addresses)
        imported = store.import_session(document, owner=owner, addresses=addresses)
        self.learn_session(copy, imported.session.id)
        turns = store.export(imported.session.id, owner=owner).turns
        new = {old.id: turn.id for old, turn in zip(document.turns, turns, strict=True)}
        for turn in copy.accepted:
            turn.id = new[turn_id(turn)]
        assert imported.copied
        assert set(imported.held) == {turn.id for turn in copy.queue}
        assert not {turn for turn, _ in store.interrupted(AGENTS)} & set(new.values())

    # --- learning ids -----------------------------------------------------------------------------------------------

    def learn_turn(self, turn: PlainTurn, id: TurnId) -> None:
        assert turn.id in (None, id)
        turn.id = id

    def learn_session(self, session: PlainSession, id: SessionId) -> None:
        assert session.id in (None, id)
        session.id = id

    def accepted(self, turn: PlainTurn, answer: Accepted) -> None:
        self.learn_turn(turn, answer.turn.id)
        self.learn_session(turn.session, answer.session.id)

    def opened(self, turn: PlainTurn | None, proof: OpenTurn | None) -> None:
        """Both stores started the same turn; its proof is kept."""
        assert (turn is None) == (proof is None), f"{turn} should have started, and {proof} did"
        if turn is not None and proof is not None:
            self.learn_turn(turn, proof.id)
            self.proved(turn, proof)
            assert proof.context == proof.found + (turn.input is not None)

    def proved(self, turn: PlainTurn, proof: OpenTurn) -> None:
        """The proof has the position of its turn's input; it is kept."""
        messages = turn.session.messages
        if turn.input in messages:
            assert proof.input.text.split() == turn.words
            assert proof.input.position == messages.index(turn.input)
        self.proofs[turn] = proof

    def _learn_windows(self, session: PlainSession) -> None:
        if any(window.id is None for window in session.windows):
            lineage = self.stores[0].lineage(id_of(session), owner=session.owner)
            for plain, real in zip(session.windows, lineage, strict=True):
                assert plain.id in (None, real.id)
                plain.id = real.id
        for window in session.windows:
            if any(said.id is None for said in window.messages):
                self._compare_window(session, window)

    # --- comparing --------------------------------------------------------------------------------------------------

    def compare(self) -> None:
        """A read ends dead turns; then both stores are equal, and all numbers have grown correctly."""
        self.plain.reap()
        for session in self.plain.sessions:
            self._compare_session(session)
        for session in [gone for gone in self._seen if gone.state == "deleted"]:
            self._compare_deleted(session)
        self._compare_lists()
        self._compare_turns()
        self._compare_search()
        self._looks += 1
        if self._looks % LOOK_BACK == 0:
            self._compare_lineage()
            self.compare_stories()

    def compare_stories(self) -> None:
        """The events of each session are complete from the first to the last."""
        for session in self.plain.sessions:
            page = self.stores[0].events_after(id_of(session), owner=session.owner, limit=1000)
            numbers = [number for event in page.events for number in range(event.number, event.last + 1)]
            assert numbers == list(range(1, len(numbers) + 1))
            assert len(numbers) == self.stores[0].session(id_of(session), owner=session.owner).last_event

    def _compare_session(self, session: PlainSession) -> None:
        store = self.stores[len(self._seen) % HANDLES]
        real = store.session(id_of(session), owner=session.owner)
        read = store.messages(id_of(session), owner=session.owner).messages
        self._learn_windows(session)
        self._compare_messages(read, session.messages)
        self._compare_fields(session, real)
        seen = self._seen.setdefault(session, Seen())
        self._compare_growth(seen, session, real, [said.id for said in read])
        if self._looks % FOLLOW == 0:
            self._follow(seen, session, real)
        session.revision = real.revision

    def _compare_fields(self, session: PlainSession, real: SessionInfo) -> None:
        assert real.window == session.window.id
        assert real.state == session.state_at(self.clock.now())
        assert real.length == len(session.messages)
        assert (real.waiting, real.held) == (len(session.queue), len(session.queue) - len(session.ready))
        assert real.turns == session.turns
        assert real.running == (None if session.running is None else session.running.id)
        assert real.activity == session.activity
        assert (real.title, real.title_by, real.pinned) == (session.title, session.title_by, session.pinned)
        assert real.expires_at == session.shown_expiry(self.clock.now())
        assert real.source == (None if session.source is None else session.source.id)
        shown = [] if real.preview is None else real.preview.split()
        assert not shown or shown in [said.words[: len(shown)] for said in reach(session.window)]

    def _compare_messages(self, read: Sequence[Message], expected: Sequence[Said]) -> None:
        assert [(said.role, said.text.split(), said.partial) for said in read] == [
            (said.role, said.words, said.partial) for said in expected
        ]
        for real, plain in zip(read, expected, strict=True):
            plain.id = plain.id or real.id
        assert [said.id for said in read] == [said.id for said in expected]
        assert [said.position for said in read] == list(range(len(read)))

    def _compare_window(self, session: PlainSession, window: PlainWindow) -> None:
        page = self.stores[0].messages(id_of(session), owner=session.owner, window=window.id)
        self._compare_messages(page.messages, window.messages)
        assert page.length == len(window.messages)

    def _compare_lineage(self) -> None:
        """No window of any session has changed."""
        for session in self.plain.sessions:
            lineage = self.stores[0].lineage(id_of(session), owner=session.owner)
            assert [window.id for window in lineage] == [window.id for window in session.windows]
            assert [window.reason for window in lineage] == [window.reason for window in session.windows]
            for window in session.windows:
                self._compare_window(session, window)

    def _compare_growth(self, seen: Seen, session: PlainSession, real: SessionInfo, read: list[MessageId]) -> None:
        """The revision grows with visible changes, the context with changes of the history; neither shrinks."""
        asked_to_stop = session.running is not None and session.running.cancelling
        waiting = [(turn.id, turn.held, *turn.words) for turn in session.queue]
        visible = (real.title, real.pinned, real.turns, real.running, asked_to_stop, waiting, session.state, read)
        reads = (real.window, read)
        assert real.revision >= seen.revision
        assert real.revision > seen.revision or visible == seen.visible
        assert seen.read is None or (real.context > seen.context) == (reads != seen.read)
        assert real.context >= seen.context
        seen.revision, seen.context, seen.visible, seen.read = real.revision, real.context, visible, reads

    def _follow(self, seen: Seen, session: PlainSession, real: SessionInfo) -> None:
        """The events continue exactly after the cursor, or report a fold."""
        page = self.stores[0].events_after(id_of(session), seen.cursor, owner=session.owner)
        number = page.events[0].number - 1 if page.gap == "snapshot" else seen.cursor.number
        assert page.gap != "resync"
        assert number <= seen.cursor.number
        for event in page.events:
            assert event.number == number + 1
            number = event.last
        assert number == real.last_event
        seen.cursor = page.next

    def _compare_deleted(self, session: PlainSession) -> None:
        del self._seen[session]
        with pytest.raises(NotFound):
            self.stores[0].session(id_of(session), owner=session.owner)

    def _compare_lists(self) -> None:
        for owner in OWNERS:
            listed = self.stores[1].list(owner=owner).sessions
            places = [(session.active_at, session.id) for session in listed]
            assert {session.id for session in listed} == {one.id for one in self.plain.sessions if one.owner == owner}
            assert places == sorted(places, reverse=True)

    def _compare_turns(self) -> None:
        for session in self.plain.sessions:
            for turn in session.accepted:
                if turn not in self._ended:
                    self._compare_turn(turn)
            waiting = self.stores[2].waiting(id_of(session), owner=session.owner)
            assert [turn.id for turn in waiting] == [turn.id for turn in session.queue]
        for turn in [turn for turn in self.proofs if turn.state == "ended" or turn.session.state == "deleted"]:
            self.stale = [*self.stale[-5:], self.proofs.pop(turn)]
        assert set(self.proofs) == {one.running for one in self.plain.sessions if one.running is not None}

    def _compare_turn(self, turn: PlainTurn) -> None:
        real = self.stores[2].turn(turn_id(turn), owner=turn.session.owner)
        outcome = None if real.outcome is None else real.outcome.__struct_config__.tag
        assert (real.state, outcome) == (turn.state, turn.outcome)
        assert real.taken_by == (None if turn.taken_by is None else turn.taken_by.id)
        assert (real.agent, real.held) == (turn.agent, turn.held)
        if turn.state == "waiting" and turn.record is None:
            assert real.input is not None
            assert [part.text for part in real.input if isinstance(part, Text)] == turn.words
        if turn.state == "ended":
            self._ended.add(turn)

    def _compare_search(self) -> None:
        """A search finds exactly the reachable messages of the owner's sessions, each once, where it can be read."""
        for owner in OWNERS:
            readers: dict[MessageId, set[SessionId]] = {}
            for session in [one for one in self.plain.sessions if one.owner == owner]:
                for said in reach(session.window):
                    if said.role in ("user", "assistant") and said.words:
                        readers.setdefault(message_id(said), set()).add(id_of(session))
            page = self.stores[0].search("w*", owner=owner, limit=1000)
            assert sorted(hit.message for hit in page.hits) == sorted(readers)
            assert all(hit.session in readers[hit.message] for hit in page.hits)
            assert page.lag == 0


def id_of(session: PlainSession) -> SessionId:
    """The session's id, which must be known by now."""
    assert session.id is not None
    return session.id


def turn_id(turn: PlainTurn) -> TurnId:
    """The turn's id, which must be known by now."""
    assert turn.id is not None
    return turn.id


def message_id(said: Said) -> MessageId:
    """The message's id, which must be known by now."""
    assert said.id is not None
    return said.id


def window_id(window: PlainWindow) -> WindowId:
    """The window's id, which must be known by now."""
    assert window.id is not None
    return window.id
