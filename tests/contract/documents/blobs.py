"""Attachments: uploaded in chunks, stored once per owner, gone with their last use."""

from hashlib import sha256

import pytest

from backstay.errors import Conflict, InvalidPayload, NotFound, TooLarge
from backstay.model import message
from backstay.model.blob import Blob
from backstay.model.content import Attachment, Part, Text, ToolCall, ToolResult
from backstay.model.ids import UploadId
from backstay.model.limits import Limits
from backstay.model.turn import Completed, Failed, Outcome
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import ContractBase, OpenAnother
from tests.contract.builders import ME, STRANGER, enqueue, look, new_session, said_in, say, start, talk
from tests.contract.history.rotation import compact

DAY = 86_400.0
PHOTO = b"a photograph of a cat"
NOBODY = UploadId("upl_01hzx0000070000000000000ab")


class BlobContract(ContractBase):
    """A blob lives as long as a message or a waiting turn refers to it."""

    # --- uploading --------------------------------------------------------------------------------------------------

    def test_an_upload_becomes_a_blob_named_by_its_bytes(self, store: Store) -> None:
        blob = upload(store, PHOTO)

        assert blob == Blob(hash=sha256(PHOTO).hexdigest(), size=len(PHOTO))
        assert store.blob(blob.hash, owner=ME) == blob
        assert store.read_blob(blob.hash, owner=ME) == PHOTO

    def test_chunks_of_any_size_are_put_together_in_order(self, store: Store) -> None:
        going = store.begin_upload(owner=ME)

        sizes = [store.upload_chunk(going, low, PHOTO[low:high], owner=ME) for low, high in _cuts(1, 2, 9, 20)]

        assert sizes == [1, 2, 9, 20, len(PHOTO)]
        assert store.finish_upload(going, owner=ME).hash == sha256(PHOTO).hexdigest()
        assert store.read_blob(sha256(PHOTO).hexdigest(), owner=ME) == PHOTO

    def test_an_upload_without_a_chunk_is_an_empty_blob(self, store: Store) -> None:
        blob = store.finish_upload(store.begin_upload(owner=ME), owner=ME)

        assert blob == Blob(hash=sha256(b"").hexdigest(), size=0)
        assert store.read_blob(blob.hash, owner=ME) == b""

    def test_a_large_blob_is_read_as_it_was_written(self, store: Store) -> None:
        large = bytes(range(256)) * 12_000

        blob = upload(store, large)

        read = b"".join(store.read_blob(blob.hash, owner=ME, start=at) for at in range(0, len(large), 1 << 20))
        assert read == large

    def test_every_chunk_can_be_repeated(self, store: Store) -> None:
        going = store.begin_upload(owner=ME)
        for low, high in _cuts(5, 12):
            store.upload_chunk(going, low, PHOTO[low:high], owner=ME)

        sizes = {store.upload_chunk(going, low, PHOTO[low:high], owner=ME) for low, high in _cuts(5, 12)}

        assert sizes == {len(PHOTO)}
        assert store.finish_upload(going, owner=ME).hash == sha256(PHOTO).hexdigest()

    def test_a_chunk_is_not_repeated_with_other_bytes(self, store: Store) -> None:
        going = store.begin_upload(owner=ME)
        store.upload_chunk(going, 0, b"aaaa", owner=ME)

        with pytest.raises(Conflict):
            store.upload_chunk(going, 0, b"bbbb", owner=ME)

        assert store.finish_upload(going, owner=ME).hash == sha256(b"aaaa").hexdigest()

    @pytest.mark.parametrize("start", [2, 5, 100])
    def test_a_chunk_that_leaves_a_hole_or_overlaps_is_refused(self, store: Store, start: int) -> None:
        going = store.begin_upload(owner=ME)
        store.upload_chunk(going, 0, b"aaaa", owner=ME)

        with pytest.raises(Conflict):
            store.upload_chunk(going, start, b"bbbb", owner=ME)

        assert store.upload_chunk(going, 4, b"bbbb", owner=ME) == 8

    def test_an_empty_chunk_is_refused(self, store: Store) -> None:
        with pytest.raises(InvalidPayload):
            store.upload_chunk(store.begin_upload(owner=ME), 0, b"", owner=ME)

    def test_a_chunk_larger_than_the_limit_is_refused(self, open_another: OpenAnother) -> None:
        store = open_another(limits=Limits(chunk_bytes=10))
        going = store.begin_upload(owner=ME)

        with pytest.raises(TooLarge):
            store.upload_chunk(going, 0, b"x" * 11, owner=ME)

        assert store.upload_chunk(going, 0, b"x" * 10, owner=ME) == 10

    def test_a_file_larger_than_the_limit_is_refused(self, open_another: OpenAnother) -> None:
        store = open_another(limits=Limits(blob_bytes=10))
        going = store.begin_upload(owner=ME)
        store.upload_chunk(going, 0, b"x" * 10, owner=ME)

        with pytest.raises(TooLarge):
            store.upload_chunk(going, 10, b"x", owner=ME)

        assert store.finish_upload(going, owner=ME).size == 10

    def test_an_upload_with_other_bytes_than_were_announced_is_refused(self, store: Store) -> None:
        going = store.begin_upload(owner=ME)
        store.upload_chunk(going, 0, PHOTO, owner=ME)

        with pytest.raises(InvalidPayload):
            store.finish_upload(going, owner=ME, expected_hash=sha256(b"a dog").hexdigest())
        with pytest.raises(NotFound):
            store.blob(sha256(PHOTO).hexdigest(), owner=ME)

        assert store.finish_upload(going, owner=ME, expected_hash=sha256(PHOTO).hexdigest()).size == len(PHOTO)

    def test_a_finished_upload_takes_no_more_bytes(self, store: Store) -> None:
        going = store.begin_upload(owner=ME)
        store.upload_chunk(going, 0, PHOTO, owner=ME)
        store.finish_upload(going, owner=ME)

        with pytest.raises(NotFound):
            store.upload_chunk(going, len(PHOTO), b"more", owner=ME)

    def test_an_upload_that_was_not_begun_is_not_found(self, store: Store) -> None:
        with pytest.raises(NotFound):
            store.upload_chunk(NOBODY, 0, PHOTO, owner=ME)
        with pytest.raises(NotFound):
            store.finish_upload(NOBODY, owner=ME)

    def test_another_owner_can_neither_add_to_an_upload_nor_finish_it(self, store: Store) -> None:
        going = store.begin_upload(owner=ME)

        with pytest.raises(NotFound):
            store.upload_chunk(going, 0, PHOTO, owner=STRANGER)
        with pytest.raises(NotFound):
            store.finish_upload(going, owner=STRANGER)

    def test_an_upload_is_continued_through_another_handle(self, store: Store, other: Store) -> None:
        going = store.begin_upload(owner=ME)
        store.upload_chunk(going, 0, PHOTO[:5], owner=ME)

        other.upload_chunk(going, 5, PHOTO[5:], owner=ME)

        assert store.finish_upload(going, owner=ME).hash == sha256(PHOTO).hexdigest()

    # --- reading ----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("start", "length"), [(0, 1), (0, 5), (4, 3), (5, 7), (3, 100), (20, 5), (21, 5), (500, 5)]
    )
    def test_a_range_of_a_blob_is_read_across_its_chunks(self, store: Store, start: int, length: int) -> None:
        going = store.begin_upload(owner=ME)
        for low, high in _cuts(5, 12):
            store.upload_chunk(going, low, PHOTO[low:high], owner=ME)
        blob = store.finish_upload(going, owner=ME)

        assert store.read_blob(blob.hash, owner=ME, start=start, length=length) == PHOTO[start : start + length]

    @pytest.mark.parametrize(("start", "length"), [(-1, 5), (0, -1)])
    def test_a_negative_range_is_refused(self, store: Store, start: int, length: int) -> None:
        blob = upload(store, PHOTO)

        with pytest.raises(InvalidPayload):
            store.read_blob(blob.hash, owner=ME, start=start, length=length)

    def test_another_owner_cannot_read_a_blob(self, store: Store) -> None:
        blob = upload(store, PHOTO)

        with pytest.raises(NotFound):
            store.blob(blob.hash, owner=STRANGER)
        with pytest.raises(NotFound):
            store.read_blob(blob.hash, owner=STRANGER)

    # --- using ------------------------------------------------------------------------------------------------------

    def test_a_message_with_an_attachment_is_read_as_it_was_sent(self, store: Store) -> None:
        session = new_session(store)
        parts: list[Part] = [Text("look at this"), attached(upload(store, PHOTO))]

        store.submit(session, parts, owner=ME, start=True)

        assert said_in(store, session)[0].parts == tuple(parts)

    def test_equal_bytes_are_one_blob_to_each_owner(self, store: Store) -> None:
        mine = [upload(store, PHOTO), upload(store, PHOTO)]
        theirs = upload(store, PHOTO, owner=STRANGER)
        session = new_session(store)
        store.record(session, [message.user(attached(mine[0]))], owner=ME)

        store.delete(session, owner=ME)

        assert mine[0] == mine[1] == theirs
        assert not exists(store, mine[0])
        assert store.read_blob(theirs.hash, owner=STRANGER) == PHOTO

    def test_another_owners_blob_cannot_be_sent(self, store: Store) -> None:
        blob = upload(store, PHOTO, owner=STRANGER)
        session = new_session(store)
        before = look(store, session)

        with pytest.raises(InvalidPayload):
            store.submit(session, attached(blob), owner=ME)
        with pytest.raises(InvalidPayload):
            store.record(session, [message.user(attached(blob))], owner=ME)

        assert look(store, session) == before

    def test_bytes_that_were_never_uploaded_cannot_be_sent(self, store: Store) -> None:
        session = new_session(store)
        nothing = Attachment("0" * 64, "cat.jpg", "image/jpeg", 5)
        before = look(store, session)

        for start_now in (True, False):
            with pytest.raises(InvalidPayload):
                store.submit(session, nothing, owner=ME, start=start_now)

        assert look(store, session) == before

    def test_an_upload_that_is_not_finished_cannot_be_sent(self, store: Store) -> None:
        going = store.begin_upload(owner=ME)
        store.upload_chunk(going, 0, PHOTO, owner=ME)

        with pytest.raises(InvalidPayload):
            store.submit(
                new_session(store),
                attached(Blob(hash=sha256(PHOTO).hexdigest(), size=len(PHOTO))),
                owner=ME,
            )

    # --- gone with the last use -------------------------------------------------------------------------------------

    def test_a_blob_goes_with_the_session_whose_message_had_it(self, store: Store) -> None:
        blob, session = upload(store, PHOTO), new_session(store)
        store.record(session, [message.user(attached(blob))], owner=ME)

        deleted = store.delete(session, owner=ME)

        assert deleted.blobs == 1
        assert not exists(store, blob)

    def test_a_blob_stays_as_long_as_another_session_has_it(self, store: Store) -> None:
        blob, first, second = upload(store, PHOTO), new_session(store), new_session(store)
        for session in (first, second):
            store.record(session, [message.user(attached(blob))], owner=ME)

        counts = [store.delete(first, owner=ME).blobs]
        stayed = exists(store, blob)
        counts.append(store.delete(second, owner=ME).blobs)

        assert counts == [0, 1]
        assert stayed
        assert not exists(store, blob)

    def test_a_blob_stays_as_long_as_a_fork_reads_its_message(self, store: Store) -> None:
        blob, session = upload(store, PHOTO), new_session(store)
        store.record(session, [message.user(attached(blob))], owner=ME)
        fork = store.fork(session, owner=ME).id

        store.delete(session, owner=ME)
        stayed = exists(store, blob)
        store.delete(fork, owner=ME)

        assert stayed
        assert not exists(store, blob)

    def test_a_blob_of_an_undone_message_stays(self, store: Store) -> None:
        blob, session = upload(store, PHOTO), new_session(store)
        store.record(session, [message.user(attached(blob))], owner=ME)

        store.undo(session, owner=ME)

        assert exists(store, blob)

    def test_a_blob_of_a_compacted_message_stays(self, store: Store) -> None:
        blob, session = upload(store, PHOTO), new_session(store)
        store.record(session, [message.user(attached(blob))], owner=ME)

        compact(store, session, keep_from=1)

        assert exists(store, blob)

    def test_a_waiting_turn_keeps_its_blob_until_it_is_withdrawn(self, store: Store) -> None:
        blob, session = upload(store, PHOTO), new_session(store)
        turn = enqueue(store, session, attached(blob))
        waited = exists(store, blob)

        store.withdraw(turn.id, owner=ME)

        assert waited
        assert not exists(store, blob)

    def test_a_cancelled_waiting_turn_releases_its_blob(self, store: Store) -> None:
        blob, session = upload(store, PHOTO), new_session(store)
        turn = enqueue(store, session, attached(blob))

        store.cancel(turn.id, owner=ME)

        assert not exists(store, blob)

    def test_an_ending_session_releases_the_blobs_of_its_waiting_turns(self, store: Store) -> None:
        sent, waiting, session = upload(store, b"sent"), upload(store, b"waiting"), new_session(store)
        store.record(session, [message.user(attached(sent))], owner=ME)
        enqueue(store, session, attached(waiting))

        store.end(session, owner=ME)

        assert exists(store, sent)
        assert not exists(store, waiting)

    def test_a_deleted_session_takes_the_blobs_of_its_waiting_turns_with_it(self, store: Store) -> None:
        blob, session = upload(store, PHOTO), new_session(store)
        enqueue(store, session, attached(blob))

        deleted = store.delete(session, owner=ME)

        assert deleted.blobs == 1
        assert not exists(store, blob)

    def test_editing_a_waiting_turn_releases_its_removed_blobs(self, store: Store) -> None:
        old, kept, new = (upload(store, name) for name in (b"old", b"kept", b"new"))
        session = new_session(store)
        turn = enqueue(store, session, [attached(old), attached(kept)])

        store.edit_waiting(turn.id, [attached(kept), attached(new)], owner=ME)

        assert [exists(store, blob) for blob in (old, kept, new)] == [False, True, True]

    def test_an_edit_that_brings_an_unknown_blob_changes_nothing(self, store: Store) -> None:
        blob, session = upload(store, PHOTO), new_session(store)
        turn = enqueue(store, session, attached(blob))
        before = look(store, session)

        with pytest.raises(InvalidPayload):
            store.edit_waiting(turn.id, Attachment("0" * 64, "dog.jpg", "image/jpeg", 5), owner=ME)

        assert look(store, session) == before
        assert exists(store, blob)

    def test_a_blob_passes_from_the_waiting_turn_to_its_message(self, store: Store) -> None:
        blob, session = upload(store, PHOTO), new_session(store)
        enqueue(store, session, attached(blob))

        proof = store.claim(["default"])
        assert proof is not None
        store.finish(proof, Completed())

        assert exists(store, blob)
        assert store.delete(session, owner=ME).blobs == 1

    def test_a_blob_passes_from_messages_that_waited_to_be_recorded(self, store: Store) -> None:
        blob, session = upload(store, PHOTO), new_session(store)
        proof = start(store, session)
        store.record(session, [message.user(attached(blob))], owner=ME)

        store.finish(proof, Completed())

        assert said_in(store, session)[-1].parts == (attached(blob),)
        assert exists(store, blob)

    def test_a_blob_passes_from_steering_to_the_turn_that_took_it(self, store: Store) -> None:
        blob, session = upload(store, PHOTO), new_session(store)
        proof = start(store, session)
        store.submit(session, attached(blob), owner=ME, if_busy="steer")
        proof = store.checkpoint(proof, [Text("I see")], take_steering=True).open
        taken = exists(store, blob)

        store.finish(proof, Completed())

        assert taken
        assert exists(store, blob)
        assert said_in(store, session)[-1].parts == (attached(blob),)

    @pytest.mark.parametrize("outcome", [Completed(), Failed("no")])
    def test_a_blob_of_a_tool_result_passes_from_the_running_turn_to_its_message(
        self, store: Store, clock: ManualClock, outcome: Outcome
    ) -> None:
        blob, session = upload(store, PHOTO), new_session(store)
        result = ToolResult("c1", "drawn", files=(attached(blob),))
        proof = store.checkpoint(start(store, session), [ToolCall("c1", "draw"), result]).open
        clock.advance(3 * DAY)
        store.collect()
        assert exists(store, blob)

        if (
            store.session(session, owner=ME).running is not None
        ):  # nobody renewed the lease: a read may have ended the turn
            store.finish(proof, outcome)
        clock.advance(3 * DAY)
        store.collect()

        assert said_in(store, session)[-1].parts == (result,)
        assert exists(store, blob)
        store.delete(session, owner=ME)
        assert not exists(store, blob)

    def test_a_recorded_tool_result_keeps_its_blob(self, store: Store) -> None:
        blob, session = upload(store, PHOTO), new_session(store)
        call = message.assistant(ToolCall("c1", "draw"))
        store.record(session, [call, message.tool(ToolResult("c1", files=(attached(blob),)))], owner=ME)

        assert exists(store, blob)
        assert said_in(store, session)[-1].parts == (ToolResult("c1", files=(attached(blob),)),)
        store.delete(session, owner=ME)
        assert not exists(store, blob)

    def test_a_tool_result_with_bytes_that_were_never_uploaded_is_refused(self, store: Store) -> None:
        session = new_session(store)
        proof = say(store, start(store, session), ToolCall("c1", "draw"))
        missing = Attachment("0" * 64, "cat.jpg", "image/jpeg", 5)

        with pytest.raises(InvalidPayload):
            store.checkpoint(proof, [ToolResult("c1", "drawn", files=(missing,))])
        with pytest.raises(InvalidPayload):
            store.checkpoint(proof, [ToolResult("c1", "drawn", files=("cat.jpg",))])  # type: ignore[arg-type]

        assert store.finish(proof, Completed(), bodies=[ToolResult("c1", "drawn")]).messages[-1].parts == (
            ToolResult("c1", "drawn"),
        )

    def test_a_turn_that_was_exported_while_it_ran_is_imported_without_its_files(self, store: Store) -> None:
        blob, session = upload(store, PHOTO), new_session(store)
        result = ToolResult("c1", "drawn", files=(attached(blob),))
        say(store, start(store, session), ToolCall("c1", "draw"), result)

        copy = store.import_session(store.export(session, owner=ME), owner=STRANGER).session

        stored = store.messages(copy.id, owner=STRANGER).messages
        assert ToolResult("c1", "drawn") in [part for one in stored for part in one.parts]
        store.export(copy.id, owner=STRANGER)  # has every file that it names

    def test_a_retried_input_keeps_its_blob(self, store: Store) -> None:
        blob, session = upload(store, PHOTO), new_session(store)
        store.finish(start(store, session, attached(blob)), Completed())

        turn = store.retry(session, owner=ME).turn
        store.withdraw(turn.id, owner=ME)

        assert exists(store, blob)

    # --- never used -------------------------------------------------------------------------------------------------

    def test_a_blob_that_no_message_took_is_dropped_after_a_day(self, store: Store, clock: ManualClock) -> None:
        blob = upload(store, PHOTO)
        clock.advance(DAY - 1)
        early = store.collect().blobs
        kept = exists(store, blob)
        clock.advance(2)

        late = store.collect().blobs

        assert (early, kept, late) == (0, True, 1)
        assert not exists(store, blob)

    def test_an_upload_that_was_never_finished_is_dropped_after_a_day(self, store: Store, clock: ManualClock) -> None:
        going = store.begin_upload(owner=ME)
        store.upload_chunk(going, 0, PHOTO, owner=ME)
        clock.advance(DAY + 1)

        assert store.collect().blobs == 1
        with pytest.raises(NotFound):
            store.finish_upload(going, owner=ME)

    def test_a_blob_that_a_message_took_is_not_dropped(self, store: Store, clock: ManualClock) -> None:
        blob, session = upload(store, PHOTO), new_session(store)
        store.record(session, [message.user(attached(blob))], owner=ME)
        clock.advance(3 * DAY)

        assert store.collect().blobs == 0
        assert exists(store, blob)

    def test_a_blob_that_a_waiting_turn_brings_is_not_dropped(self, store: Store, clock: ManualClock) -> None:
        blob, session = upload(store, PHOTO), new_session(store)
        enqueue(store, session, attached(blob))
        clock.advance(3 * DAY)

        assert store.collect().blobs == 0
        assert exists(store, blob)

    def test_bytes_that_are_uploaded_again_are_kept_for_another_day(self, store: Store, clock: ManualClock) -> None:
        upload(store, PHOTO)
        clock.advance(DAY - 1)
        again = upload(store, PHOTO)
        clock.advance(2)

        store.collect()

        assert exists(store, again)

    def test_bytes_just_uploaded_can_be_sent_after_their_earlier_use_ended(self, store: Store) -> None:
        session, next_session = new_session(store), new_session(store)
        store.record(session, [message.user(attached(upload(store, PHOTO)))], owner=ME)
        again = upload(store, PHOTO)

        store.delete(session, owner=ME)
        store.record(next_session, [message.user(attached(again))], owner=ME)

        assert store.read_blob(again.hash, owner=ME) == PHOTO

    def test_sessions_that_are_collected_take_their_blobs_with_them(self, store: Store, clock: ManualClock) -> None:
        blob, session = upload(store, PHOTO), new_session(store)
        talk(store, session)
        store.record(session, [message.user(attached(blob))], owner=ME)
        store.end(session, owner=ME)
        clock.advance(10)

        collected = store.collect(keep_closed_for=5)

        assert (collected.deleted, collected.messages) == (1, 3)
        assert not exists(store, blob)


def upload(store: Store, data: bytes, *, owner: str = ME) -> Blob:
    """Upload these bytes."""
    going = store.begin_upload(owner=owner)
    for at in range(0, len(data), 1 << 20):
        store.upload_chunk(going, at, data[at : at + (1 << 20)], owner=owner)
    return store.finish_upload(going, owner=owner)


def attached(blob: Blob) -> Attachment:
    """The blob as part of a message."""
    return Attachment(blob.hash, "cat.jpg", "image/jpeg", blob.size)


def exists(store: Store, blob: Blob) -> bool:
    """Whether the blob is still there."""
    try:
        return store.blob(blob.hash, owner=ME) == blob
    except NotFound:
        return False


def _cuts(*at: int) -> list[tuple[int, int]]:
    """The photograph in pieces, cut at these places."""
    return list(zip((0, *at), (*at, len(PHOTO)), strict=True))
