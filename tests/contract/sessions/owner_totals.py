"""Totals and quotas per owner: stored data is counted exactly, and no owner exceeds its quota."""

from collections.abc import Callable
from hashlib import sha256
from random import randbytes

import pytest

from backstay.errors import QuotaExceeded
from backstay.model import message
from backstay.model.content import Attachment, Text
from backstay.model.ids import SessionId
from backstay.model.limits import Limits
from backstay.model.session import SessionPatch
from backstay.model.turn import Completed
from backstay.store import Store
from tests.contract.base import ContractBase, OpenAnother
from tests.contract.builders import ME, STRANGER, enqueue, new_session, refused, room, run, start, talk

BLOCK = 16 << 10


def upload(store: Store, data: bytes) -> str:
    """Upload a file; its hash."""
    begun = store.begin_upload(owner=ME)
    store.upload_chunk(begun, 0, data, owner=ME)
    return store.finish_upload(begun, owner=ME).hash


def fork_when_busy(store: Store, session: SessionId) -> None:
    if store.session(session, owner=ME).running is None:
        start(store, session)
    store.submit(session, "x", owner=ME, if_busy="fork", start=True)


def edit_first(store: Store, session: SessionId) -> None:
    if not store.messages(session, owner=ME).messages:
        run(store, session, "hello")
    asked = store.messages(session, owner=ME).messages[0].id
    opened = store.edit(session, asked, "x" * (3 * BLOCK), owner=ME, agent="default", start=True).opened
    assert opened is not None
    store.finish(opened, Completed())


def try_again(store: Store, session: SessionId) -> None:
    if not store.messages(session, owner=ME).messages:
        run(store, session, "x" * (3 * BLOCK))
    opened = store.retry(session, owner=ME, agent="default", start=True).opened
    assert opened is not None
    store.finish(opened, Completed())


def again_and_again(fill: Callable[[], object]) -> None:
    """More often than any store of a test has room for."""
    for _ in range(100):
        fill()


def wait_behind(store: Store, session: SessionId) -> None:
    if store.session(session, owner=ME).running is None:
        start(store, session)
    store.record(session, [message.user("x" * 7_000)], owner=ME)


def wait_in_new_sessions(store: Store, session: SessionId) -> None:
    enqueue(store, new_session(store), "x")


def enqueue_steering(store: Store, session: SessionId) -> None:
    if store.session(session, owner=ME).running is None:
        start(store, session)
    store.submit(session, "é" * 5_000, owner=ME, if_busy="steer")


def word(length: int) -> str:
    """A new text of this length."""
    return randbytes(length // 2).hex()


def edit_waiting_again(store: Store, session: SessionId) -> None:
    waiting = store.waiting(session, owner=ME) or [enqueue(store, session)]
    store.edit_waiting(waiting[0].id, word(9_000), owner=ME)


# Ways to fill the store.
FILLING: dict[str, Callable[[Store, SessionId], object]] = {
    "submit": lambda store, it: run(store, it, "x" * 7_000),
    "submit much": lambda store, it: run(store, it, "x" * (5 * BLOCK)),
    "new sessions": lambda store, it: run(store, new_session(store), "x"),
    "record": lambda store, it: store.record(it, [message.user("é" * 5_000)] * 4, owner=ME),
    "waiting turns": lambda store, it: enqueue(store, it, "é" * 5_000),
    "waiting turns in new sessions": wait_in_new_sessions,
    "waiting records": wait_behind,
    "steering": enqueue_steering,
    "fork": fork_when_busy,
    "edit": edit_first,
    "retry": try_again,
    "drafts": lambda store, it: store.save_draft(new_session(store), "é" * 5_000, owner=ME),
    "waiting input edited": edit_waiting_again,
    "waiting input withdrawn": lambda store, it: store.withdraw(enqueue(store, it, "x" * 7_000).id, owner=ME),
    "metadata": lambda store, it: store.update(it, SessionPatch(metadata={n: word(2_000) for n in "abc"}), owner=ME),
    "upload": lambda store, it: upload(store, randbytes(30_000)),
}


class TotalsContract(ContractBase):
    """The totals of an owner."""

    def test_an_owner_that_has_nothing_stores_nothing(self, store: Store) -> None:
        assert (store.usage(owner=ME).sessions, store.usage(owner=ME).stored_bytes) == (0, 0)

    def test_text_is_counted_in_blocks_and_attachments_by_their_size(self, store: Store) -> None:
        first, second = new_session(store), new_session(store)
        assert store.usage(owner=ME).stored_bytes == 0
        talk(store, first)
        run(store, second, "hello", "x" * (2 * BLOCK))
        assert store.usage(owner=ME).stored_bytes == 4 * BLOCK
        upload(store, b"x" * 1_000)
        upload(store, b"x" * 1_000)
        assert store.usage(owner=ME).stored_bytes == 4 * BLOCK + 1_000
        assert (store.usage(owner=ME).sessions, store.usage(owner=STRANGER).sessions) == (2, 0)

    def test_a_fork_counts_only_its_own_messages(self, store: Store) -> None:
        session = new_session(store)
        run(store, session, "hello", "x" * (4 * BLOCK))
        before = store.usage(owner=ME).stored_bytes
        fork = store.fork(session, owner=ME)
        assert (store.usage(owner=ME).sessions, store.usage(owner=ME).stored_bytes) == (2, before)
        run(store, fork.id)
        assert store.usage(owner=ME).stored_bytes == before + BLOCK

    def test_deleted_data_is_no_longer_counted(self, store: Store) -> None:
        session = new_session(store)
        blob = upload(store, b"picture")
        store.record(
            session,
            [message.user([Text("look"), Attachment(blob=blob, media_type="image/png", name="p.png", size=7)])],
            owner=ME,
        )
        run(store, session, "hello", "x" * BLOCK)
        store.delete(session, owner=ME)
        assert (store.usage(owner=ME).sessions, store.usage(owner=ME).stored_bytes) == (0, 0)

    def test_an_import_counts_like_the_exported_session(self, store: Store) -> None:
        session = new_session(store)
        run(store, session, "hello", "x" * (3 * BLOCK))
        before = store.usage(owner=ME)
        document = store.export(session, owner=ME)
        store.delete(session, owner=ME)
        store.import_session(document, owner=ME)
        assert store.usage(owner=ME) == before

    def test_an_owner_gets_no_more_sessions_than_it_may_have(self, open_another: OpenAnother) -> None:
        store = open_another(limits=Limits(sessions_per_owner=2))
        session = new_session(store)
        store.resolve(room(), owner=ME)
        with refused(store, session, QuotaExceeded):
            store.create(owner=ME)
        with refused(store, session, QuotaExceeded):
            store.submit(room("hall"), "hello", owner=ME)
        with refused(store, session, QuotaExceeded):
            store.fork(session, owner=ME)
        store.create(owner=STRANGER)
        store.delete(session, owner=ME)
        store.create(owner=ME)

    def test_a_full_owner_stores_no_more_input_but_its_turns_end(self, open_another: OpenAnother) -> None:
        store = open_another(limits=Limits(stored_bytes_per_owner=2 * BLOCK))
        session = new_session(store)
        run(store, session, "hello", "hi")
        proof = start(store, session)
        answer = "x" * (3 * BLOCK)
        store.finish(proof, Completed(), bodies=[Text(answer)])
        assert store.messages(session, owner=ME).messages[-1].text == answer
        asked = store.messages(session, owner=ME).messages[0].id
        for verb in (
            lambda: store.submit(session, "more", owner=ME),
            lambda: store.record(session, [message.user("more")], owner=ME),
            lambda: store.retry(session, owner=ME),
            lambda: store.edit(session, asked, "more", owner=ME),
            lambda: store.begin_upload(owner=ME),
            lambda: store.import_session(store.export(session, owner=ME), owner=ME),
        ):
            with refused(store, session, QuotaExceeded):
                verb()
        store.submit(room(), "hello", owner=STRANGER)

    @pytest.mark.parametrize("way", FILLING)
    def test_no_input_takes_an_owner_beyond_its_quota(self, open_another: OpenAnother, way: str) -> None:
        most = 200_000
        store = open_another(limits=Limits(stored_bytes_per_owner=most))
        session = new_session(store)
        with pytest.raises(QuotaExceeded, match="may store 200,000"):
            again_and_again(lambda: FILLING[way](store, session))
        assert most - 6 * BLOCK < store.usage(owner=ME).stored_bytes <= most

    def test_a_waiting_input_counts_until_it_is_withdrawn_and_once_when_it_runs(self, store: Store) -> None:
        # The events that show the inputs count like these, and stay.
        session = new_session(store)
        first, second = enqueue(store, session, "x" * (2 * BLOCK)), enqueue(store, session, "x" * (4 * BLOCK))
        assert store.usage(owner=ME).stored_bytes == (6 + 6 + 1) * BLOCK
        store.edit_waiting(second.id, "short", owner=ME)
        assert store.usage(owner=ME).stored_bytes == (2 + 6 + 1) * BLOCK
        opened = store.claim(["default"])
        assert opened is not None
        assert (opened.id, store.usage(owner=ME).stored_bytes) == (first.id, (2 + 6 + 1) * BLOCK)
        store.finish(opened, Completed())
        store.withdraw(second.id, owner=ME)
        assert store.usage(owner=ME).stored_bytes == (2 + 6 + 1) * BLOCK

    def test_each_edit_of_a_waiting_input_counts_because_its_event_stays(self, store: Store) -> None:
        turn = enqueue(store, new_session(store), "short")
        for text in ("a" * BLOCK, "b" * BLOCK, "c" * BLOCK, "short"):
            store.edit_waiting(turn.id, text, owner=ME)
        assert store.usage(owner=ME).stored_bytes == 4 * BLOCK

    def test_a_draft_counts_until_it_is_replaced(self, store: Store) -> None:
        session = new_session(store)
        for length in (3 * BLOCK, 5 * BLOCK, BLOCK, 0):
            store.save_draft(session, "x" * length, owner=ME)
            assert store.usage(owner=ME).stored_bytes == length

    def test_a_draft_beyond_the_quota_is_refused_and_a_shorter_one_kept(self, open_another: OpenAnother) -> None:
        store = open_another(limits=Limits(stored_bytes_per_owner=2 * BLOCK))
        session = new_session(store)
        store.save_draft(session, "x" * (2 * BLOCK), owner=ME)
        with refused(store, session, QuotaExceeded):
            store.save_draft(session, "y" * (2 * BLOCK + 1), owner=ME)
        assert store.save_draft(session, "short", owner=ME).draft == "short"

    def test_a_full_owner_stores_no_more_names_and_metadata(self, open_another: OpenAnother) -> None:
        store = open_another(limits=Limits(stored_bytes_per_owner=2 * BLOCK))
        session = new_session(store)
        store.save_draft(session, "x" * (2 * BLOCK), owner=ME)
        changes: list[Callable[[], object]] = [
            lambda: store.rename(session, "A title", owner=ME),
            lambda: store.tag(session, add=["later"], owner=ME),
            lambda: store.update(session, SessionPatch(metadata={"a": "b"}), owner=ME),
            lambda: store.point(room("hall"), session, owner=ME),
            lambda: store.create(metadata={"a": "b"}, owner=ME),
        ]
        for change in changes:
            with refused(store, session, QuotaExceeded):
                change()
        assert store.pin(session, True, owner=ME).pinned
        assert store.rename(session, "A title of an agent", by="agent", owner=ME).title == "A title of an agent"

    def test_steering_counts_until_its_turn_ends(self, store: Store) -> None:
        session = new_session(store)
        running = start(store, session)
        store.submit(session, "x" * (2 * BLOCK), owner=ME, if_busy="steer")
        assert store.usage(owner=ME).stored_bytes == 5 * BLOCK
        running = store.checkpoint(running, [], take_steering=True).open
        assert store.usage(owner=ME).stored_bytes == 5 * BLOCK
        store.finish(running, Completed())
        store.delete(session, owner=ME)
        assert store.usage(owner=ME).stored_bytes == 0

    def test_an_imported_waiting_turn_counts_like_the_exported_one(self, store: Store) -> None:
        session = new_session(store)
        enqueue(store, session, "x" * (2 * BLOCK))
        store.save_draft(session, "x" * BLOCK, owner=ME)
        store.rename(session, "A title", owner=ME)
        before = store.usage(owner=ME).stored_bytes
        document = store.export(session, owner=ME)
        store.import_session(document, owner=ME, new_ids=True)
        assert store.usage(owner=ME).stored_bytes == 2 * before

    def test_a_waiting_input_does_not_become_longer_than_its_owner_may_store(self, open_another: OpenAnother) -> None:
        store = open_another(limits=Limits(stored_bytes_per_owner=2 * BLOCK))
        turn = enqueue(store, new_session(store), "short")
        with refused(store, turn.session, QuotaExceeded):
            store.edit_waiting(turn.id, "x" * (3 * BLOCK), owner=ME)
        assert store.edit_waiting(turn.id, "longer", owner=ME).input == (Text("longer"),)

    def test_a_repeated_request_of_a_full_owner_is_answered(self, open_another: OpenAnother) -> None:
        store = open_another(limits=Limits(stored_bytes_per_owner=BLOCK))
        session = new_session(store)
        first = store.submit(session, "hello", owner=ME, request_id="m-1", start=True)
        assert first.opened is not None
        store.finish(first.opened, Completed(), bodies=[Text("hi")])
        with pytest.raises(QuotaExceeded, match="may store"):
            store.submit(session, "more", owner=ME, request_id="m-2")
        assert store.submit(session, "hello", owner=ME, request_id="m-1").repeated

    def test_an_upload_stops_when_its_owner_is_full(self, open_another: OpenAnother) -> None:
        store = open_another(limits=Limits(stored_bytes_per_owner=1_000))
        begun = store.begin_upload(owner=ME)
        data = b"x" * 1_000
        store.upload_chunk(begun, 0, data, owner=ME)
        with pytest.raises(QuotaExceeded):
            store.upload_chunk(begun, 1_000, b"y", owner=ME)
        # Received bytes can be kept, and a repeated chunk is recognised.
        assert store.upload_chunk(begun, 0, data, owner=ME) == 1_000
        assert store.finish_upload(begun, owner=ME).hash == sha256(data).hexdigest()
