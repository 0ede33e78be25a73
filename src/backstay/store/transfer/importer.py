"""The importer: a document becomes a session in many short transactions, and is visible only after the last of them.

Other writers can commit between two of them. If the process dies, its rows stay hidden and are removed later.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from backstay.errors import Conflict, StoreError
from backstay.model.codec import write_parts
from backstay.model.documents.document import ExportedTurn, Imported
from backstay.model.documents.inspection import inspect
from backstay.model.documents.records import Header, LocatedRecord
from backstay.model.documents.reid import ReId
from backstay.model.ids import ImportId, TurnId, UploadId
from backstay.model.limits import Limits
from backstay.model.operations.findings import ProgressCallback
from backstay.model.turn import COMPACTOR
from backstay.store.engine import Engine, Transaction
from backstay.store.transfer.draft import DocumentDraft
from backstay.store.verbs import blob_store
from backstay.store.verbs.documents import import_cleanup, import_rows
from backstay.store.verbs.documents.import_rows import ShownSession
from backstay.store.verbs.turns import event_log

T = TypeVar("T")
Step = Callable[[Transaction], object]

# A transaction writes at most this many rows, and at most this many bytes.
BATCH = 200
BATCH_BYTES = 256 << 10
_CLEARED = 200

_encode = msgspec.json.Encoder().encode


def import_document(
    engine: Engine,
    records: Iterable[LocatedRecord],
    *,
    owner: str,
    new_ids: bool,
    addresses: bool,
    progress: ProgressCallback,
) -> Imported:
    """Check the document, and make it a session of this owner; see `Store.import_session`."""
    with DocumentDraft() as draft:
        count = draft.fill(records, progress)
        inspect(draft, engine.limits)
        clear_given_up(engine)
        done = 0

        def report(more: int) -> None:
            nonlocal done
            done += more
            progress("importing", done, count)

        for copy in (new_ids, True):
            imported = _Import(engine, draft, owner, report, new_ids=copy, addresses=addresses).run()
            if imported is not None:
                return imported
            # Another import, or a new session, took one of the ids since they were looked up.
        raise Conflict("the new ids of the import are taken", hint="Import the document again.")


def check_document(records: Iterable[LocatedRecord], limits: Limits) -> None:
    """Check a document as an import does, without a store; `InvalidPayload` if it is not sound."""
    with DocumentDraft() as draft:
        draft.fill(records)
        inspect(draft, limits)


def clear_given_up(engine: Engine) -> int:
    """Clear away the rows of imports that were given up. Returns how many there were."""
    cleared = 0
    while found := engine.read(partial(import_cleanup.given_up, limit=_CLEARED)):
        for import_id in found:
            _clear(engine, import_id)
        cleared += len(found)
    return cleared


def _clear(engine: Engine, import_id: ImportId) -> None:
    # Given up for good first: an importer that is only slow, or has another clock, fails at its next step.
    engine.write(partial(import_cleanup.give_up, import_id=import_id), durable=False)
    while engine.write(partial(import_cleanup.clear_some, import_id=import_id, limit=_CLEARED), durable=False):
        pass


class _Import:
    def __init__(
        self,
        engine: Engine,
        draft: DocumentDraft,
        owner: str,
        progress: Callable[[int], None],
        *,
        new_ids: bool,
        addresses: bool,
    ) -> None:
        self._engine, self._draft, self._owner, self._addresses = engine, draft, owner, addresses
        self._progress = progress
        self._copied = new_ids or self._taken()
        ids = engine.peek(lambda tx: tx.ids)
        # Its own, so that an import that was given up cannot be taken for another one of the same document.
        self._import = ids.import_id()
        self._renewal = ReId(
            draft.header, (window.id for _, window in draft.windows), draft, ids if self._copied else None
        )
        self._header = self._renewal.header(draft.header if addresses else _without_addresses(draft.header))
        self._session = self._header.session.id
        self._uploads: list[tuple[UploadId, str]] = []
        self._steps: list[Step] = []
        self._bytes = 0

    def run(self) -> Imported | None:
        """Write all rows and show the session. None, with nothing written, if one of its sessions exists already."""
        shown = self._shown_session()
        try:
            if not self._begin(self._size(shown)):
                return None
            self._write_rows(shown)
            verb = partial(import_rows.show, import_id=self._import, shown=shown, owner=self._owner)
            session, here = self._engine.write(verb, exclusive=True)
        except BaseException:
            # If the store cannot be written now, its rows are removed once the import counts as given up.
            with suppress(StoreError):
                self._abandon()
            raise
        dropped = () if self._addresses else tuple(one.spelling for one in self._draft.header.addresses)
        return Imported(
            session=session,
            copied=self._copied,
            addresses=here,
            elsewhere=tuple(one.spelling for one in self._header.addresses if one.spelling not in here),
            dropped=dropped,
            held=tuple(shown.held),
        )

    def _abandon(self) -> None:
        _clear(self._engine, self._import)
        for upload, name in self._uploads:
            self._engine.write(
                partial(blob_store.drop_upload, upload=upload, owner=self._owner, hash=name), durable=False
            )

    # --- before anything is written -----------------------------------------------------------------------------------

    def _taken(self) -> bool:
        """Whether a row of the store has one of the document's ids, or a request has one of its request ids."""
        header, draft = self._draft.header, self._draft
        return (
            self._any_taken("session_taken", "session", [header.session.id, *header.ancestors])
            or self._any_taken("window", "window", (window.id for _, window in draft.windows))
            or self._any_taken("message_origin", "message", draft.message_ids())
            or self._any_taken("turn_taken", "turn", (turn for turn, _ in draft.turns_named()))
            or any(
                self._engine.read(partial(import_rows.any_requested, owner=self._owner, requests=names))
                for names in _batched((request for _, request in self._requests()), BATCH)
            )
        )

    def _any_taken(self, query: str, name: str, ids: Iterable[str]) -> bool:
        return any(
            self._engine.read(partial(import_rows.any_taken, query=query, name=name, ids=batch))
            for batch in _batched(ids, BATCH)
        )

    def _requests(self) -> Iterator[tuple[TurnId, str]]:
        """The turns that a redelivery of their request should find, and the ids of these requests."""
        if self._addresses:
            for _, turn in self._draft.turns():
                if turn.request is not None and turn.request.scope is not None:
                    yield turn.id, turn.request.id

    def _shown_session(self) -> ShownSession:
        facts, draft = self._draft.header.session, self._draft
        own = [window for _, window in draft.windows if window.session == facts.id]
        start = next(window.start for window in own if window.id == facts.window)
        message = (message for window in own for _, message in draft.messages(window.id))
        shown = ShownSession(
            self._header,
            start=start,
            length=max(start, draft.end_of_window(facts.window)),
            text_bytes=sum(len(write_parts(message.parts).text.encode()) for message in message)
            + sum(import_rows.waiting_bytes(turn) for _, turn in draft.turns())
            + sum(event_log.text_size(event.body) for _, event in draft.events())
            + len(self._header.marks.draft.encode()),
        )
        if not self._copied:
            shown.requested = self._requests
        return shown

    def _size(self, shown: ShownSession) -> int:
        """The number of bytes that the import adds for the owner."""
        size = shown.text_bytes
        for heads in _batched((head for _, head in self._draft.attachments()), BATCH):
            verb = partial(blob_store.missing, owner=self._owner, hashes=[head.hash for head in heads])
            absent = self._engine.read(verb)
            size += sum(head.size for head in heads if head.hash in absent)
        return size

    def _begin(self, size: int) -> bool:
        verb = partial(import_rows.begin, import_id=self._import, header=self._header, owner=self._owner, size=size)
        return self._engine.write(verb, durable=False)

    # --- in many steps ------------------------------------------------------------------------------------------------

    def _write_rows(self, shown: ShownSession) -> None:
        draft, owner, session = self._draft, self._owner, self._session
        exported = [self._renewal.window(window) for _, window in draft.windows]
        for window in exported:
            self._add(partial(import_rows.write_window, window=window))
        for window in exported:
            self._add(partial(import_rows.write_segments, window=window))
        self._write_attachments()
        # In the order of their writing, so that a search prefers the newest of equals as before.
        for source, old in draft.messages_by_time():
            message, home = self._renewal.message(old), self._renewal.window_id(source)
            self._add(partial(import_rows.write_message, window=home, message=message, owner=owner), _length(old))
        for turn in self._turns(shown):
            self._add(partial(import_rows.write_turn, session=session, turn=turn, owner=owner), _length(turn))
        for _, call in draft.calls():
            self._add(partial(import_rows.write_call, call=self._renewal.call(call)))
        self._flush()
        self._add(partial(import_rows.lock_feed, import_id=self._import))
        self._flush()
        for ancestor in reversed(self._header.ancestors):
            self._add(partial(import_rows.write_tombstone, ancestor=ancestor))
        for _, event in draft.events():
            self._add(
                partial(import_rows.write_event, session=session, event=self._renewal.event(event)), _length(event)
            )
        self._flush()

    def _write_attachments(self) -> None:
        """The bytes that the owner does not have yet, chunk by chunk."""
        self._flush()
        for _, head in self._draft.attachments():
            upload = self._write(partial(blob_store.reserve, owner=self._owner, hash=head.hash))
            if upload is None:
                continue
            self._uploads.append((upload, head.hash))
            start = 0
            for data in self._draft.bytes_of(head.hash):
                self._write(partial(import_rows.write_chunk, upload=upload, owner=self._owner, start=start, data=data))
                start += len(data)
            self._write(partial(blob_store.finish, upload=upload, owner=self._owner, expected=head.hash))

    def _turns(self, shown: ShownSession) -> Iterator[ExportedTurn]:
        """The turns as they are written. `shown` receives the facts that the last step needs."""
        newest = -1
        for _, old in self._draft.turns():
            turn = self._renewal.turn(old)
            if turn.request is not None and not self._addresses:
                turn = replace(turn, request=replace(turn.request, scope=None))
            if import_rows.is_held(turn):
                shown.held.append(turn.id)
                if not turn.held:
                    shown.newly_held.append(turn.id)
            if turn.state == "running":
                shown.running = turn.id
            # Sessions that were exported before their agent was known have the agent of their last turn.
            if self._header.session.agent is None and turn.agent not in (None, COMPACTOR) and turn.event > newest:
                newest, shown.agent = turn.event, turn.agent
            yield turn

    def _add(self, step: Step, size: int = 100) -> None:
        if self._steps and self._bytes + size > BATCH_BYTES:
            self._flush()
        self._steps.append(step)
        self._bytes += size
        if len(self._steps) >= BATCH:
            self._flush()

    def _flush(self) -> None:
        steps, self._steps, self._bytes = self._steps, [], 0
        if steps:
            self._write(lambda tx: [step(tx) for step in steps])
            self._progress(len(steps))

    def _write(self, verb: Callable[[Transaction], T]) -> T:
        """Run one transaction. Only the last one of the import is durable, and all before it with it."""

        def renewed(tx: Transaction) -> T:
            import_rows.renew_lease(tx, self._import)
            return verb(tx)

        return self._engine.write(renewed, durable=False)


def _length(record: object) -> int:
    """The approximate size of the row of a record."""
    return len(_encode(record))


def _without_addresses(header: Header) -> Header:
    return replace(header, session=replace(header.session, family=None, place=None), addresses=())


def _batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    following = iter(items)
    while batch := list(islice(following, size)):
        yield batch
