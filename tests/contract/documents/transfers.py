"""Exports and imports in steps: others write meanwhile, no half session is visible, a failure leaves nothing."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from io import BytesIO
from pathlib import Path
from threading import Event

import pytest

from backstay.errors import Conflict, NotFound, QuotaExceeded
from backstay.model import message
from backstay.model.content import Attachment, Text
from backstay.model.documents.document import Imported
from backstay.model.documents.records import gathered, records_in
from backstay.model.event import FeedEvent
from backstay.model.ids import SessionId
from backstay.model.limits import Limits
from backstay.model.operations.findings import ProgressCallback
from backstay.model.turn import Completed
from backstay.store import Store, open_store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import ContractBase, OpenAnother
from tests.contract.builders import AGENT, ME, STRANGER, look, new_session, run, texts
from tests.contract.sample_histories import HISTORIES

# As many messages as several transactions of an import take.
MANY = 1_000
# An import without progress for so long is abandoned.
GIVEN_UP = 3_600.0


class Stopped(Exception):
    """A test stops the operation."""


def long_session(store: Store, *, owner: str = ME) -> SessionId:
    """A session with many messages, a waiting turn and an attachment."""
    session = store.create(owner=owner).id
    upload = store.begin_upload(owner=owner)
    store.upload_chunk(upload, 0, b"picture" * 100, owner=owner)
    blob = store.finish_upload(upload, owner=owner).hash
    picture = Attachment(blob=blob, media_type="image/png", name="p.png", size=700)
    store.record(session, [message.user([Text("look"), picture]), message.assistant("a picture")], owner=owner)
    for place in range(0, MANY, 500):
        said = [message.user(f"question {number}, {'and so on' * 10}") for number in range(place, place + 500)]
        store.record(session, said, owner=owner)
    opened = store.submit(session, "tell me", owner=owner, start=True).opened
    assert opened is not None
    opened = store.checkpoint(opened, [Text("word ") for _ in range(300)]).open
    store.finish(opened, Completed())
    store.submit(session, "waiting", owner=owner)
    return session


def exported(store: Store, session: SessionId, *, owner: str = ME) -> BytesIO:
    """A session as a file."""
    file = BytesIO()
    store.export_to(session, file, owner=owner)
    file.seek(0)
    return file


class Steps:
    """Does something after each step of an import, or after one of them."""

    def __init__(self, do: Callable[[], object], at: int | None = None) -> None:
        self._do, self._at, self.count = do, at, 0

    def __call__(self, what: str, done: int, total: int) -> None:
        if what == "importing":
            self.count += 1
            if self._at in (None, self.count):
                self._do()


def stop() -> None:
    """Fail."""
    raise Stopped


def at_each_step(do: Callable[[], object]) -> ProgressCallback:
    """Does something at each progress report of an export, the first time before it reads messages."""
    return lambda *_: (do(), None)[1]


class TransferContract(ContractBase):
    """A session goes in and out piece by piece."""

    @pytest.fixture
    def document(self, tmp_path: Path, clock: ManualClock) -> BytesIO:
        """A session of another store."""
        with open_store(tmp_path / "origin.db", clock=clock) as origin:
            return exported(origin, long_session(origin))

    # --- imports ----------------------------------------------------------------------------------------------------

    def test_other_owners_write_between_the_steps_of_an_import(
        self, store: Store, other: Store, document: BytesIO
    ) -> None:
        theirs = other.create(owner=STRANGER).id
        steps = Steps(lambda: other.record(theirs, [message.user("me too")], owner=STRANGER))

        store.import_session(document, owner=ME, new_ids=True, progress=steps)

        assert steps.count > MANY // 200
        assert len(texts(store, theirs, owner=STRANGER)) == steps.count

    def test_a_session_is_invisible_until_its_import_is_complete(
        self, store: Store, other: Store, document: BytesIO
    ) -> None:
        session = gathered(record for _, record in records_in(document, 1 << 20)).session.id
        document.seek(0)
        before, position = other.list(owner=ME), other.feed(None, owner=ME).next
        used = other.usage(owner=ME).sessions

        def look_around() -> None:
            assert (other.list(owner=ME), other.usage(owner=ME).sessions) == (before, used)
            assert (other.search("question", owner=ME).hits, other.feed(position, owner=ME).events) == ((), ())
            assert (other.claim([AGENT]), other.fold(older_than=-1e9)) == (None, 0)
            assert other.collect().deleted == 0
            for verb in (other.session, other.events_after, other.messages, other.export):
                with pytest.raises(NotFound):
                    verb(session, owner=ME)
            assert other.heads([(session, ME)]) == {}

        steps = Steps(look_around)
        imported = store.import_session(document, owner=ME, progress=steps)

        assert steps.count > MANY // 200
        assert (imported.session.id, imported.copied) == (session, False)
        assert other.session(session, owner=ME) == imported.session
        assert len(other.search("question", owner=ME, limit=20).hits) == 20

    @pytest.mark.parametrize("step", range(1, 11))
    def test_an_import_that_fails_at_any_step_leaves_nothing(self, store: Store, document: BytesIO, step: int) -> None:
        before = store.list(owner=ME), store.usage(owner=ME), store.feed(0, owner=ME)

        with pytest.raises(Stopped):
            store.import_session(document, owner=ME, progress=Steps(stop, at=step))

        assert (store.list(owner=ME), store.usage(owner=ME), store.feed(0, owner=ME)) == before
        # Its ids are free, so nothing has them.
        document.seek(0)
        assert not store.import_session(document, owner=ME).copied

    @pytest.mark.parametrize("step", [1, 6, 10])
    def test_a_stalled_import_is_abandoned_and_its_rows_are_deleted(
        self, store: Store, other: Store, clock: ManualClock, document: BytesIO, step: int
    ) -> None:
        def stand_still() -> None:
            clock.advance(GIVEN_UP)
            other.collect()

        with pytest.raises(Conflict, match="given up"):
            store.import_session(document, owner=ME, progress=Steps(stand_still, at=step))

        document.seek(0)
        assert not store.import_session(document, owner=ME).copied

    def test_an_import_that_was_given_up_does_not_touch_another_of_its_document(
        self, store: Store, other: Store, clock: ManualClock, document: BytesIO
    ) -> None:
        begun, failed = Event(), Event()
        again = BytesIO(document.getvalue())

        def wait_for_the_first() -> None:
            begun.set()
            assert failed.wait(60)

        with ThreadPoolExecutor(1) as threads:
            second: list[Future[Imported]] = []

            def stand_still() -> None:
                clock.advance(GIVEN_UP)
                steps = Steps(wait_for_the_first, at=2)
                second.append(threads.submit(other.import_session, again, owner=ME, progress=steps))
                assert begun.wait(60)

            with pytest.raises(Conflict, match="given up"):
                store.import_session(document, owner=ME, progress=Steps(stand_still, at=3))
            failed.set()
            imported = second[0].result()

        assert not imported.copied
        document.seek(0)
        copy = store.import_session(document, owner=ME, new_ids=True).session
        assert texts(store, imported.session.id) == texts(store, copy.id) != []

    def test_a_fork_that_was_imported_halfway_leaves_nothing(
        self, store: Store, other: Store, clock: ManualClock
    ) -> None:
        session = HISTORIES["forked_from_forks"](store, clock)
        document = exported(store, session)
        before = look(store, session, [])

        for step in range(1, 4):
            document.seek(0)
            with pytest.raises(Stopped):
                other.import_session(document, owner=STRANGER, new_ids=True, progress=Steps(stop, at=step))
            assert other.list(owner=STRANGER).sessions == ()
            assert other.feed(0, owner=STRANGER).events == ()

        assert look(store, session, []) == before

    def test_the_feed_waits_for_an_import_and_has_each_event_once_in_order(
        self, store: Store, other: Store, document: BytesIO
    ) -> None:
        mine, position = new_session(other), other.feed(None, owner=ME).next
        steps = Steps(lambda: run(other, mine, "meanwhile", "yes"))
        seen: list[FeedEvent] = []

        def read_and_write(what: str, done: int, total: int) -> None:
            nonlocal position
            page = other.feed(position, owner=ME)
            seen.extend(page.events)
            position = page.next
            steps(what, done, total)

        imported = store.import_session(document, owner=ME, progress=read_and_write)
        while page := other.feed(position, owner=ME).events:
            seen.extend(page)
            position = page[-1].position

        events_of = [one.event.number for one in seen if one.event.session == imported.session.id]
        others = [one.event.number for one in seen if one.event.session == mine]
        assert events_of == list(range(1, imported.session.last_event + 1))
        assert others == list(range(others[0], other.session(mine, owner=ME).last_event + 1))
        assert [one.position for one in seen] == sorted({one.position for one in seen})

    def test_the_feed_of_an_owner_continues_after_an_abandoned_import(
        self, store: Store, other: Store, clock: ManualClock, document: BytesIO
    ) -> None:
        mine, position = new_session(other), other.feed(None, owner=ME).next

        def stand_still() -> None:
            clock.advance(GIVEN_UP)
            run(other, mine, "on", "and on")
            # No row is deleted yet, and no event of the import is visible.
            fed = other.feed(position, owner=ME).events
            assert {one.event.session for one in fed} == {mine}
            assert other.feed(None, owner=ME).next == fed[-1].position

        events_begun = Steps(stand_still, at=9)
        with pytest.raises(Conflict):
            store.import_session(document, owner=ME, progress=events_begun)
        assert events_begun.count == 9

    def test_an_import_that_an_owner_has_no_room_for_stores_nothing(
        self, store: Store, open_another: OpenAnother, document: BytesIO
    ) -> None:
        used = store.usage(owner=ME)
        small = open_another(limits=Limits(stored_bytes_per_owner=used.stored_bytes + 20_000))

        with pytest.raises(QuotaExceeded):
            small.import_session(document, owner=ME)

        assert store.usage(owner=ME) == used

    def test_a_quota_that_is_reached_while_a_session_is_imported_holds(
        self, store: Store, open_another: OpenAnother, document: BytesIO
    ) -> None:
        few = open_another(limits=Limits(sessions_per_owner=store.usage(owner=ME).sessions + 1))

        with pytest.raises(QuotaExceeded):
            few.import_session(document, owner=ME, progress=Steps(lambda: few.create(owner=ME), at=3))

        assert len(store.list(owner=ME).sessions) == 1
        assert store.usage(owner=ME).stored_bytes == 0

    # --- exports ----------------------------------------------------------------------------------------------------

    def test_an_export_is_the_session_at_one_moment(self, store: Store, other: Store) -> None:
        session = long_session(store)
        before, file = exported(store, session), BytesIO()

        late = partial(other.record, session, [message.user("too late")], owner=ME)
        store.export_to(session, file, owner=ME, progress=at_each_step(late))

        assert file.getvalue() == before.getvalue()
        assert other.session(session, owner=ME).waiting > 1

    def test_an_export_begins_again_when_old_turns_are_folded(
        self, store: Store, other: Store, clock: ManualClock
    ) -> None:
        session, file = HISTORIES["streamed"](store, clock), BytesIO(b"kept")
        clock.advance(100_000)
        file.seek(4)

        store.export_to(session, file, owner=ME, progress=at_each_step(partial(other.fold, older_than=1)))

        assert file.getvalue() == b"kept" + exported(store, session).getvalue()

    def test_a_session_that_is_deleted_while_it_is_exported_is_not_found(self, store: Store, other: Store) -> None:
        session = long_session(store)

        def delete() -> None:
            with suppress(NotFound):
                other.delete(session, owner=ME)

        with pytest.raises(NotFound):
            store.export_to(session, BytesIO(), owner=ME, progress=at_each_step(delete))
