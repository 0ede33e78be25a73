"""Watching: how a follower detects changes cheaply."""

import threading
from collections.abc import Callable
from itertools import pairwise

import pytest
from msgspec.structs import replace

from backstay.errors import BackstayError, LeaseLost, QuotaExceeded, RequestMismatch, SessionBusy, SessionEnded
from backstay.model.content import Text, ToolCall
from backstay.model.event import Cursor
from backstay.model.ids import IdSource, SessionId, TurnId
from backstay.model.limits import Limits
from backstay.model.message import user
from backstay.model.session import SessionPatch, Ttl
from backstay.model.turn import Accepted, Completed
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import ContractBase, OpenAnother
from tests.contract.builders import ME, STRANGER, enqueue, new_session, room, run, say, start, talk
from tests.touching import touch

# Ids that no store has given.
OTHER = IdSource(ManualClock())

# Verbs that change nothing.
QUIET: dict[str, Callable[[Store], object]] = {
    "reads": lambda store: (store.list(owner=ME), store.about(), store.has_work(["cook"])),
    "an empty reaping": lambda store: store.reap(),
    "the version itself": lambda store: [store.version() for _ in range(5)],
}

Prepare = Callable[[Store], Callable[[], object]]


def _again(prepare: Callable[[Store, SessionId], Callable[[], object]]) -> Prepare:
    """A verb that was run once on a new session; the test repeats it."""

    def run_once(store: Store) -> Callable[[], object]:
        verb = prepare(store, new_session(store))
        verb()
        return verb

    return run_once


def _end_of(store: Store, session: SessionId) -> Cursor:
    """The cursor of a reader that has read the whole event log."""
    return store.events_after(session, owner=ME).next


def _ended_turn(store: Store) -> Callable[[], object]:
    turn = run(store, room()).turn
    return lambda: store.cancel(turn.id, owner=ME)


def _asked_turn(store: Store) -> Callable[[], object]:
    turn = start(store, room())
    store.cancel(turn.id, owner=ME)
    return lambda: store.cancel(turn.id, owner=ME)


def _forgotten_turn(store: Store) -> Callable[[], object]:
    turn = run(store, room()).turn
    store.forget(turn.id, owner=ME)
    return lambda: store.forget(turn.id, owner=ME)


def _decided_call(store: Store) -> Callable[[], object]:
    call = ToolCall(id="c", name="pay", arguments={}, approval=True)
    turn = say(store, start(store, room()), call)
    store.approve(turn.id, "c", owner=ME)
    return lambda: store.approve(turn.id, "c", owner=ME)


def _queue(store: Store) -> Callable[[], object]:
    session = new_session(store)
    turns = [enqueue(store, session).id for _ in range(3)]
    return lambda: store.reorder(session, turns, owner=ME)


def _marks(store: Store) -> Callable[[], object]:
    session = run(store, room()).turn.session
    store.save_draft(session, "well", owner=ME)
    store.mark_read(session, 3, owner=ME)
    return lambda: (store.save_draft(session, "well", owner=ME), store.mark_read(session, 2, owner=ME))


def _upkeep(store: Store) -> Callable[[], object]:
    run(store, room())

    def keep() -> None:
        store.collect(keep_closed_for=1.0)
        store.fold(older_than=-1)
        store.index()
        store.reap()

    keep()
    return keep


def _token(store: Store) -> Callable[[], object]:
    token = store.add_token(owner=ME, name="a", hash=bytes(32))

    def again() -> None:
        store.add_token(owner=ME, name="a", hash=bytes(32))
        store.revoke_token(token.id, owner=ME)

    again()
    return again


def _compaction(store: Store) -> Callable[[], object]:
    session = run(store, room()).turn.session
    store.compact(session, owner=ME)
    return lambda: store.compact(session, owner=ME)


def _running_turn(store: Store) -> Callable[[], object]:
    turn = start(store, room())

    def refused() -> None:
        with pytest.raises(SessionBusy):
            store.submit(turn.session, "more", owner=ME, if_busy="reject")

    return refused


def _uploaded_chunk(store: Store) -> Callable[[], object]:
    upload = store.begin_upload(owner=ME)
    store.upload_chunk(upload, 0, b"some bytes", owner=ME)
    return lambda: store.upload_chunk(upload, 0, b"some bytes", owner=ME)


def _waiting_turn(store: Store) -> Callable[[], object]:
    turn = enqueue(store, new_session(store)).id
    return lambda: store.release(turn, owner=ME)


def _waiting_input(store: Store, session: SessionId) -> Callable[[], object]:
    turn = enqueue(store, session).id
    return lambda: store.edit_waiting(turn, "another", owner=ME)


def _refused(verb: Callable[[Store, SessionId, TurnId], object]) -> Prepare:
    """A verb that is refused in a session in which a turn waits."""

    def prepare(store: Store) -> Callable[[], object]:
        turn = enqueue(store, new_session(store))

        def refused() -> None:
            with pytest.raises(BackstayError):
                verb(store, turn.session, turn.id)

        return refused

    return prepare


def _repeated_by_address(store: Store) -> Callable[[], object]:
    def send() -> Accepted:
        return store.submit(room(), "more", owner=ME, request_id="r")

    send()
    return send


def _mismatch(store: Store) -> Callable[[], object]:
    session = new_session(store)
    store.submit(session, "one", owner=ME, request_id="r")

    def refused() -> None:
        with pytest.raises(RequestMismatch):
            store.submit(session, "another", owner=ME, request_id="r")

    return refused


def _ended(verb: Callable[[Store, SessionId], object]) -> Prepare:
    """A verb that is refused in an ended session."""

    def prepare(store: Store) -> Callable[[], object]:
        session = new_session(store)
        store.end(session, owner=ME)

        def refused() -> None:
            with pytest.raises(SessionEnded):
                verb(store, session)

        return refused

    return prepare


def _lost_lease(store: Store) -> Callable[[], object]:
    turn = start(store, room())
    store.cancel(turn.id, owner=ME, take=True)

    def refused() -> None:
        with pytest.raises(LeaseLost):
            store.checkpoint(turn, [Text("late")])

    return refused


# Verbs that have nothing to change, and verbs that are rejected.
IDLE: dict[str, Prepare] = {
    "rename": _again(lambda store, it: lambda: store.rename(it, "Dinner", owner=ME)),
    "pin": _again(lambda store, it: lambda: store.pin(it, True, owner=ME)),
    "archive": _again(lambda store, it: lambda: store.archive(it, True, owner=ME)),
    "tag": _again(lambda store, it: lambda: store.tag(it, owner=ME, add=["home"], remove=["work"])),
    "update": _again(lambda store, it: lambda: store.update(it, SessionPatch(title="Dinner", pinned=True), owner=ME)),
    "point": _again(lambda store, it: lambda: store.point(room("attic"), it, owner=ME)),
    "resolve": _again(lambda store, it: lambda: store.resolve(room(), owner=ME)),
    "end": _again(lambda store, it: lambda: store.end(it, owner=ME)),
    "claim": _again(lambda store, _: lambda: store.claim(["default"])),
    "claim in a session": _again(lambda store, it: lambda: store.claim(["default"], session=it, owner=ME)),
    "languages": _again(lambda store, _: lambda: store.set_search_languages([])),
    "cancel what has ended": _ended_turn,
    "cancel what was asked to stop": _asked_turn,
    "forget": _forgotten_turn,
    "approve": _decided_call,
    "reorder": _queue,
    "draft and read mark": _marks,
    "tokens": _token,
    "compact": _compaction,
    "release": _waiting_turn,
    "a waiting input that stays the same": _again(_waiting_input),
    "refused undo": _refused(lambda store, it, _: store.undo(it, owner=ME)),
    "refused redo": _refused(lambda store, it, _: store.redo(it, owner=ME)),
    "refused delete": _refused(lambda store, it, _: store.delete(it, owner=STRANGER)),
    "refused withdrawal": _refused(lambda store, _, turn: store.withdraw(turn, owner=STRANGER)),
    "refused change": _refused(lambda store, _, turn: store.edit_waiting(turn, "more", owner=STRANGER)),
    "refused retry": _refused(lambda store, it, _: store.retry(it, owner=ME)),
    "refused edit": _refused(lambda store, it, _: store.edit(it, OTHER.message(), "more", owner=ME)),
    "refused resumption": _refused(lambda store, _, turn: store.resume(turn, owner=ME)),
    "refused omission": _refused(lambda store, it, _: store.omit(it, OTHER.message(), owner=ME)),
    "refused fork": _refused(lambda store, it, _: store.fork(it, owner=ME, at=OTHER.message())),
    "refused rotation": _refused(
        lambda store, it, _: store.rotate(it, [], owner=ME, parent=OTHER.window(), keep_from=0)
    ),
    "refused turn": _running_turn,
    "repeated turn": _again(lambda store, it: lambda: store.submit(it, "more", owner=ME, request_id="r")),
    "repeated record": _again(lambda store, it: lambda: store.record(it, [user("more")], owner=ME, request_id="r")),
    "repeated request with other words": _mismatch,
    "repeated turn by its address": _repeated_by_address,
    "turn for an ended session": _ended(lambda store, it: store.submit(it, "more", owner=ME)),
    "record for an ended session": _ended(lambda store, it: store.record(it, [user("more")], owner=ME)),
    "turn for an unknown session": _refused(lambda store, _, __: store.submit(OTHER.session(), "more", owner=ME)),
    "output after the lease is lost": _lost_lease,
    "refused upload": _refused(lambda store, _, __: store.finish_upload(OTHER.upload(), owner=ME)),
    "refused record": _refused(lambda store, it, _: store.record(it, [user("more")], owner=ME, if_busy="reject")),
    "refused revision": _refused(lambda store, it, _: store.submit(it, "more", owner=ME, expect_revision=0)),
    "refused sign-in": _refused(
        lambda store, _, __: store.redeem(bytes(32), hash=bytes(32), name="browser", seconds=60)
    ),
    "repeated chunk": _uploaded_chunk,
    "refused chunk": _refused(lambda store, _, __: store.upload_chunk(OTHER.upload(), 0, b"x", owner=ME)),
    "upkeep": _upkeep,
}


def asked_at_once(store: Store, threads: int) -> set[int]:
    """The versions that several threads read at the same time."""
    bodies_of: set[int] = set()
    together = threading.Barrier(threads)

    def ask() -> None:
        together.wait()
        bodies_of.update(store.version() for _ in range(5))

    crowd = [threading.Thread(target=ask) for _ in range(threads)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    return bodies_of


class WatchContract(ContractBase):
    """Facts about watching."""

    def test_every_commit_of_any_handle_changes_the_version(self, store: Store, other: Store) -> None:
        session = new_session(store)
        seen = [store.version()]

        for handle in [store, other] * 3:
            touch(handle, session, owner=ME)
            seen.append(store.version())

        assert all(earlier != later for earlier, later in pairwise(seen))

    def test_a_checkpoint_changes_the_version(self, store: Store, other: Store) -> None:
        proof = start(store, room())
        before = other.version()

        say(store, proof, Text("one"))

        assert other.version() != before

    @pytest.mark.parametrize("look", QUIET.values(), ids=QUIET.keys())
    def test_reads_do_not_change_the_version(self, store: Store, other: Store, look: Callable[[Store], object]) -> None:
        talk(store, new_session(store))
        before = store.version()

        look(store)
        look(other)

        assert store.version() == before

    @pytest.mark.parametrize("prepare", IDLE.values(), ids=IDLE.keys())
    def test_a_verb_that_changes_nothing_writes_nothing(self, store: Store, prepare: Prepare) -> None:
        # Otherwise it registers itself before its first lease.
        store.register_worker()
        repeat = prepare(store)
        before = store.version()

        repeat()

        assert store.version() == before

    def test_what_a_quota_refuses_does_not_change_the_version(self, store: Store, open_another: OpenAnother) -> None:
        new_session(store)
        limited = open_another(limits=Limits(sessions_per_owner=1))
        before = store.version()

        with pytest.raises(QuotaExceeded):
            limited.create(owner=ME)
        with pytest.raises(QuotaExceeded):
            limited.resolve(room("attic"), owner=ME)
        with pytest.raises(QuotaExceeded):
            limited.submit(room("attic"), "hello", owner=ME)

        assert store.version() == before

    def test_the_version_is_the_same_for_every_handle(self, store: Store) -> None:
        session = new_session(store)
        versions = []
        for threads in (1, 2, 3, 4, 5, 6, 6, 6):
            touch(store, session, owner=ME)
            versions.append(asked_at_once(store, threads))

        assert [len(bodies_of) for bodies_of in versions] == [1] * 8
        assert len(set.union(*versions)) == 8

    def test_a_head_is_the_cursor_after_the_last_event(self, store: Store, other: Store) -> None:
        kitchen, cellar = run(store, room("kitchen")).turn.session, new_session(store)
        enqueue(other, cellar)

        heads = store.heads([(kitchen, ME), (cellar, ME)])

        assert heads == {each: _end_of(store, each) for each in (kitchen, cellar)}
        assert {each: head.number for each, head in heads.items()} == {
            each: store.session(each, owner=ME).last_event for each in (kitchen, cellar)
        }

    def test_a_folded_or_deleted_session_has_the_cursor_after_its_last_event(
        self, store: Store, clock: ManualClock
    ) -> None:
        proof = start(store, room("kitchen"))
        store.finish(say(store, proof, Text("one")), Completed(), bodies=[Text("two")])
        before = store.heads([(proof.session, ME)])
        clock.advance(60)
        assert store.fold(older_than=1) > 0, "there is something to fold"

        assert store.heads([(proof.session, ME)]) == before == {proof.session: _end_of(store, proof.session)}
        store.delete(proof.session, owner=ME)
        assert store.heads([(proof.session, ME)]) == {proof.session: _end_of(store, proof.session)}

    def test_a_head_moves_with_every_event(self, store: Store, other: Store) -> None:
        proof = start(store, room())
        before = other.heads([(proof.session, ME)])[proof.session]

        proof = say(store, proof, Text("one"), Text("two"))

        assert other.heads([(proof.session, ME)]) == {proof.session: replace(before, number=before.number + 2)}
        store.finish(proof, Completed())
        assert other.heads([(proof.session, ME)]) == {proof.session: replace(before, number=before.number + 3)}

    def test_a_missing_session_or_one_of_another_owner_has_no_head(self, store: Store, clock: ManualClock) -> None:
        mine, theirs = new_session(store), new_session(store, owner=STRANGER)
        nowhere = IdSource(clock).session()

        heads = store.heads([(mine, ME), (theirs, ME), (mine, STRANGER), (nowhere, ME)])

        assert set(heads) == {mine}
        assert store.heads([]) == {}

    def test_a_closed_session_keeps_its_head(self, store: Store, clock: ManualClock) -> None:
        session = store.create(owner=ME, ttl=Ttl(idle=60)).id
        clock.advance(60)
        store.collect()

        assert store.heads([(session, ME)]) == {session: _end_of(store, session)}
