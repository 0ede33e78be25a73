"""Totals and quotas per owner: what an owner stores is counted exactly, and nobody stores more than it may."""

from hashlib import sha256

import pytest

from backstay.errors import QuotaExceeded
from backstay.model import message
from backstay.model.content import Attachment, Text
from backstay.model.limits import Limits
from backstay.model.turn import Completed
from backstay.store import Store
from tests.contract.base import ContractBase, OpenAnother
from tests.contract.builders import ME, STRANGER, new_session, refused, room, run, start, talk

BLOCK = 16 << 10


def upload(store: Store, data: bytes) -> str:
    """Upload a file; its hash."""
    begun = store.begin_upload(owner=ME)
    store.upload_chunk(begun, 0, data, owner=ME)
    return store.finish_upload(begun, owner=ME).hash


class TotalsContract(ContractBase):
    """What an owner stores."""

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

    def test_a_fork_counts_only_what_is_said_in_it(self, store: Store) -> None:
        session = new_session(store)
        run(store, session, "hello", "x" * (4 * BLOCK))
        before = store.usage(owner=ME).stored_bytes
        fork = store.fork(session, owner=ME)
        assert (store.usage(owner=ME).sessions, store.usage(owner=ME).stored_bytes) == (2, before)
        run(store, fork.id)
        assert store.usage(owner=ME).stored_bytes == before + BLOCK

    def test_what_is_deleted_counts_no_more(self, store: Store) -> None:
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

    def test_an_import_counts_like_what_was_exported(self, store: Store) -> None:
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
        # What has arrived can be kept, and a repeated chunk is known.
        assert store.upload_chunk(begun, 0, data, owner=ME) == 1_000
        assert store.finish_upload(begun, owner=ME).hash == sha256(data).hexdigest()
