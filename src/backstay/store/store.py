"""The store: runs commands on an engine, and offers each of them as a method."""

import inspect
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from io import BytesIO
from types import TracebackType
from typing import BinaryIO, Concatenate, ParamSpec, Self, TypeVar, get_args

import msgspec

from backstay.errors import (
    Conflict,
    CorruptRecord,
    InvalidPayload,
    NotFound,
    Rejected,
    StoreFull,
    StoreUnavailable,
)
from backstay.model.codec import check_name
from backstay.model.documents.document import Export, Imported
from backstay.model.documents.records import LocatedRecord, records_in, records_of
from backstay.model.ids import SessionId, TurnId, WorkerId, check_session_id
from backstay.model.limits import Limits
from backstay.model.operations.findings import ProgressCallback, quiet
from backstay.model.operations.store_info import About, Load
from backstay.model.schedules.schedule import DueSchedule, DueTimes, Schedule
from backstay.model.search.results import SearchPage
from backstay.model.search.terms import parse_query
from backstay.model.session import Collected, SessionFilter
from backstay.model.turn import COMPACTOR, OpenTurn
from backstay.store import commands
from backstay.store.commands.command import Read, Write
from backstay.store.commands.housekeeping import DAY_MS
from backstay.store.commands.input_checks import PAGE, check_filter, check_kind, check_limit, check_names, check_owner
from backstay.store.commands.lookup import ANY
from backstay.store.engine import Engine, Pending, SeenLease, Transaction, WouldBlock
from backstay.store.session_row import SessionRow
from backstay.store.verbs import (
    agent_registry,
    best_matches,
    blob_store,
    message_search,
    session_queries,
    store_upkeep,
)
from backstay.store.verbs.message_search import SearchResult
from backstay.store.verbs.turns import submission

P = ParamSpec("P")
T = TypeVar("T")

CATCH_UP_STEPS = 10
# A read that finds a dead holder reads again; each time, another holder must have died since.
MOST_ATTEMPTS = 10

Seen = tuple[T, list[SeenLease]]


def _runs(command: Callable[P, Write[T] | Read[T]]) -> Callable[Concatenate["Store", P], T]:
    """A method of the store that runs this command. Name, parameters and docstring are the command's."""

    def method(self: "Store", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(command(*args, **kwargs))

    signature = inspect.signature(command)
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__name__, method.__doc__, method.__module__ = command.__name__, command.__doc__, __name__
    method.__qualname__ = f"Store.{command.__name__}"
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]  # where inspect looks for it
        parameters=[itself, *signature.parameters.values()], return_annotation=get_args(signature.return_annotation)[0]
    )
    return method


class Store:
    """A durable store of sessions. One handle is one worker: the leases that it takes are its own, and end with it.

    Every verb is one transaction: once it has returned it is durable, and if it raises nothing has changed. A running
    turn whose holder is dead is ended by the first operation that finds it, even by a read.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._process, self._closed = os.getpid(), False
        self._registered: set[str] = set()  # Registered agents are never removed, so this cannot become stale.

    def __enter__(self) -> Self:
        return self

    def __del__(self) -> None:
        # An engine that could not be opened leaves a store without attributes. A fork's copy is its parent's to close.
        if not getattr(self, "_closed", True) and os.getpid() == self._process:
            warnings.warn(
                f"store {self.worker} was dropped while open; use `with open_store(…) as store:` or call close()",
                ResourceWarning,
                stacklevel=1,
                source=self,
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- running commands -------------------------------------------------------------------------------------------

    def run(self, command: Write[T] | Read[T]) -> T:
        """Run a command and wait for it.

        Args:
            command: A value that a function of `backstay.commands` returned.

        Returns:
            The command's result. A write is committed by then.

        Raises:
            StoreUnavailable: The store is closed, or a write could not begin in time.
            StoreFull: There is no room for a write.
        """
        if isinstance(command, Read):
            return self._look(self._engine.read if command.snapshot else self._engine.peek, command.verb)
        if command.registers:
            self._engine.register_worker()
        precheck = self.precheck(command)
        if precheck is not None and (known := self.run(precheck)) is not None:
            return known
        return self._engine.write(
            command.verb, durable=self._durable(command), exclusive=command.exclusive, read_first=command.read_first
        )

    def read_now(self, read: Read[T]) -> T:
        """Run a short read on the caller's thread, which may be that of an event loop.

        It raises `WouldBlock` if the read would take long or wait, or met a turn with a lost holder, which `run` ends.

        Args:
            read: A value that a function of `backstay.commands` returned.

        Returns:
            The command's result.

        Raises:
            StoreUnavailable: The store is closed.
        """

        def verb(tx: Transaction) -> T:
            value = read.verb(tx)
            if any(self._engine.lapsed(lease) for _, lease in tx.seen_leases):
                raise WouldBlock
            return value

        return self._engine.read_now(verb, snapshot=read.snapshot)

    def precheck(self, write: Write[T]) -> Read[T | None] | None:
        """Return the short read that can replace a write which has nothing to change.

        Args:
            write: The command.

        Returns:
            A read of the write's result, or of None if the write must run. None instead of a read: the write has no
            such read.
        """
        if write.precheck is None:
            return None
        return Read(name=write.name, owner=write.owner, snapshot=False, verb=write.precheck)

    def _durable(self, write: Write[T]) -> bool:
        # A precheck may read rows that are not durable yet. Then the commit of the verb makes them durable.
        return write.durable or (write.precheck is not None and not self._engine.shows_only_durable)

    def start(self, write: Write[T], on_done: Callable[[], None]) -> Pending[T]:
        """Begin a write and return at once.

        Args:
            write: The command.
            on_done: Called from another thread when the write is committed or refused.

        Returns:
            The write under way; its result can be read once it is done.

        Raises:
            StoreUnavailable: The store is closed.
        """
        if write.registers:
            self._engine.register_worker()
        return self._engine.begin(
            write.verb,
            durable=self._durable(write),
            exclusive=write.exclusive,
            read_first=write.read_first,
            on_done=on_done,
        )

    def give_up(self, pending: Pending[T]) -> StoreUnavailable | None:
        """Stop waiting for a write that was started.

        Args:
            pending: The write under way.

        Returns:
            The error to raise; None if the write has begun already.
        """
        return self._engine.give_up(pending)

    # --- the handle -------------------------------------------------------------------------------------------------

    @property
    def worker(self) -> WorkerId:
        """The name under which this handle holds leases."""
        return self._engine.worker

    @property
    def limits(self) -> Limits:
        """The limits for names, messages and attachments."""
        return self._engine.limits

    @property
    def host(self) -> str:
        """The name of this machine in workspace addresses."""
        return self._engine.host

    @property
    def wait_seconds(self) -> float:
        """How long a caller should wait for a write to begin."""
        return self._engine.wait_seconds

    @property
    def min_poll_delay(self) -> float:
        """The shortest time between two reads of the version that hints cause, in seconds."""
        return self._engine.min_poll_delay

    def register_worker(self) -> None:
        """Register this handle as a living worker, before its first lease requires it."""
        self._engine.register_worker()

    def version(self) -> int:
        """A number that changes whenever any process has committed anything; cheap enough to poll."""
        return self._engine.version()

    def version_now(self) -> int:
        """The version, if it is known without waiting; otherwise it raises `WouldBlock`."""
        return self._engine.version_now()

    def watch_hints(self, hint: Callable[[], None]) -> None:
        """Exchange hints with other processes: send one at each commit, and receive theirs.

        Hints get lost; only the version is reliable.

        Args:
            hint: Called from another thread when another process may have committed something.
        """
        self._engine.watch_hints(hint)

    def about(self) -> About:
        """Describe this store: its engine, its schema, how many sessions it holds."""
        about = self._engine.about(self._engine.read(session_queries.count))
        return msgspec.structs.replace(about, search_languages=self._engine.read(message_search.languages))

    def load(self) -> Load:
        """Count the running and waiting turns of all owners."""
        with suppress(StoreFull, StoreUnavailable):
            self.reap()
        return self._engine.peek(session_queries.load)

    def close(self) -> None:
        """Finish the writes under way and release everything. Turns that this handle still holds can be reaped then."""
        self._closed = True
        self._engine.close()

    # --- sessions ---------------------------------------------------------------------------------------------------

    resolve = _runs(commands.resolve)
    create = _runs(commands.create)
    rename = _runs(commands.rename)
    pin = _runs(commands.pin)
    archive = _runs(commands.archive)
    tag = _runs(commands.tag)
    update = _runs(commands.update)
    point = _runs(commands.point)
    end = _runs(commands.end)
    delete = _runs(commands.delete)

    # --- turns ------------------------------------------------------------------------------------------------------

    submit = _runs(commands.submit)
    record = _runs(commands.record)
    requested = _runs(commands.requested)
    cancel = _runs(commands.cancel)
    edit_waiting = _runs(commands.edit_waiting)
    withdraw = _runs(commands.withdraw)
    release = _runs(commands.release)
    reorder = _runs(commands.reorder)
    approve = _runs(commands.approve)
    deny = _runs(commands.deny)
    forget = _runs(commands.forget)
    resume = _runs(commands.resume)
    interrupted = _runs(commands.interrupted)
    decided = _runs(commands.decided)
    awaited = _runs(commands.awaited)
    renew = _runs(commands.renew)
    inbox = _runs(commands.inbox)
    is_stored = _runs(commands.is_stored)
    checkpoint = _runs(commands.checkpoint)
    finish = _runs(commands.finish)

    def claim(
        self,
        agents: Collection[str],
        *,
        session: SessionId | None = None,
        owner: str | None = None,
        except_owners: Collection[str] = (),
    ) -> OpenTurn | None:
        """Start a waiting turn for one of these agents. Only a process that can run the agent may call this.

        Like every verb that may start a turn, this checks `agents` inside its transaction, after it has read the
        session row. A collection that becomes empty before that starts nothing.

        Args:
            agents: The agents that this worker serves.
            session: Start the next turn of this session; None: the oldest turn of all.
            owner: The owner of the session; without a session, only turns of this owner.
            except_owners: Without a session, no turn of these owners.

        Returns:
            The open turn; None if no turn waits.

        Raises:
            NotFound: The owner has no such session.
            InvalidPayload: `agents` is not a list of names.
        """
        check_names("agents", agents)
        self._engine.register_worker()
        # No turn can be submitted to the compactor by name, so the name is not registered.
        self.register_agents([name for name in agents if name != COMPACTOR])
        if session is not None:
            where = check_session_id(session)
            return self._engine.write(
                lambda tx: submission.claim_in(tx, where, check_owner(tx, owner), agents), read_first=True
            )
        self.reap()
        if not self._engine.peek(lambda tx: submission.has_work(tx, agents, except_owners, owner)):
            return None
        return self._engine.write(lambda tx: submission.claim(tx, agents, owner, except_owners))

    def register_agents(self, agents: Collection[str]) -> None:
        """Record that a process serves these agents. Writes nothing if they are recorded already.

        Args:
            agents: The names under which the agents claim turns.

        Raises:
            InvalidPayload: A name is empty, too long or reserved.
        """
        if self._registered.issuperset(check_names("agents", agents)):
            return
        missing = self._engine.read(lambda tx: agent_registry.unregistered(tx, agents))
        if missing:
            self._engine.write(lambda tx: agent_registry.register(tx, missing))
        self._registered.update(agents)

    def has_work(self, agents: Collection[str], *, except_owners: Collection[str] = ()) -> bool:
        """Return whether `claim` for these agents would find a turn now. Writes nothing.

        Args:
            agents: The agents that this worker serves.
            except_owners: The owners whose turns do not count.

        Returns:
            Whether a turn waits.

        Raises:
            InvalidPayload: `agents` is not a list of names.
        """
        check_names("agents", agents)
        found = partial(submission.has_work, names=agents, except_owners=except_owners)
        if self._engine.read(found):
            return True
        # The turns that waited behind those of dead holders can be claimed once those are ended.
        dead = [row for row in self._running() if self._is_dead(row)]
        for row in dead:
            self._reap_one(row.id, row.owner)
        return bool(dead) and self._engine.read(found)

    # --- history ----------------------------------------------------------------------------------------------------

    undo = _runs(commands.undo)
    redo = _runs(commands.redo)
    retry = _runs(commands.retry)
    edit = _runs(commands.edit)
    omit = _runs(commands.omit)
    fork = _runs(commands.fork)
    rotate = _runs(commands.rotate)
    compact = _runs(commands.compact)

    # --- export and import ------------------------------------------------------------------------------------------

    def export(self, session: SessionId, *, owner: str) -> Export:
        """Export a session as it is at one moment, in memory, in a form that any store can import.

        The export holds the messages of the sessions it was forked from, as far as it reads them, and the bytes of its
        attachments. A session may be larger than memory: `export_to` writes it to a file.

        Args:
            session: The session to export.
            owner: The owner of the session.

        Returns:
            The document.

        Raises:
            NotFound: The owner has no such session, or it was deleted meanwhile.
            Conflict: Old turns of the session were folded each time it was read. Export it again.
        """
        from backstay.store.transfer import exporter  # noqa: PLC0415  # few processes export

        return exporter.export(self._read, check_session_id(session), owner)

    def export_to(self, session: SessionId, file: BinaryIO, *, owner: str, progress: ProgressCallback = quiet) -> int:
        """Write a session to a file, one record to a line. Takes little memory and blocks no other caller.

        Args:
            session: The session to export.
            file: A binary file that can be written, sought and truncated. It is written from its current position.
            owner: The owner of the session.
            progress: Called with the step, how many records are done, and how many there will be.

        Returns:
            How many bytes were written.

        Raises:
            NotFound: The owner has no such session, or it was deleted meanwhile.
            Conflict: Old turns of the session were folded each time it was read. Export it again.
        """
        from backstay.store.transfer import exporter  # noqa: PLC0415  # few processes export

        return exporter.export_to(self._read, check_session_id(session), owner, file, progress)

    def import_session(
        self,
        export: Export | bytes | BinaryIO,
        *,
        owner: str,
        new_ids: bool = False,
        addresses: bool = False,
        progress: ProgressCallback = quiet,
    ) -> Imported:
        """Import an exported session for this owner, whole or not at all, as it was when it was exported.

        The session is written in many short transactions, so others can write meanwhile, and becomes visible with the
        last one. The rows of an import whose process died are removed by `collect`, or by the next import.

        If one of its ids is in use here, all ids are new and its request ids are not recognised: it is a copy.
        A turn that ran is interrupted; those that waited are held until a person calls `release`. The sessions it was
        forked from count as deleted here.

        Args:
            export: The document, its bytes, or a binary file, which is read line by line and takes little memory.
            owner: The owner of the new session.
            new_ids: Always make a copy. Ids are unique among all owners, so an import that keeps them shows whether
                another owner has them; set this where the caller must not learn that.
            addresses: Point the document's addresses to the session, except those that point to another session.
            progress: Called with the step, how many records are done, and how many there will be.

        Returns:
            The session, and how its ids, addresses and turns were imported.

        Raises:
            InvalidPayload: The document is invalid; the error names the location.
            TooLarge: The document or a part of it is too large.
            QuotaExceeded: The owner has reached its limit of stored bytes.
        """
        from backstay.store.transfer import importer  # noqa: PLC0415  # few processes import

        return importer.import_document(
            self._engine,
            self._records(export),
            owner=check_name("the owner", owner, self.limits.name_bytes),
            new_ids=new_ids,
            addresses=addresses,
            progress=progress,
        )

    def _records(self, export: Export | bytes | BinaryIO) -> Iterator[LocatedRecord]:
        if isinstance(export, Export):
            # A document may have been assembled by hand. A round trip through JSON gives its values the right types.
            return records_of(Export.from_json(export.to_json()))
        file = BytesIO(export) if isinstance(export, bytes) else export
        if not hasattr(file, "readline"):
            raise InvalidPayload(
                f"{type(export).__name__} is not an export",
                hint="Pass an Export, its bytes, or a file that is open for reading bytes.",
            )
        return records_in(file, self.limits.document_bytes)

    # --- marks and blobs --------------------------------------------------------------------------------------------

    marks = _runs(commands.marks)
    save_draft = _runs(commands.save_draft)
    mark_read = _runs(commands.mark_read)
    begin_upload = _runs(commands.begin_upload)
    upload_chunk = _runs(commands.upload_chunk)
    finish_upload = _runs(commands.finish_upload)
    blob = _runs(commands.blob)
    read_blob = _runs(commands.read_blob)

    # --- reading ----------------------------------------------------------------------------------------------------

    usage = _runs(commands.usage)
    session = _runs(commands.session)
    revision = _runs(commands.revision)
    heads = _runs(commands.heads)
    list = _runs(commands.list_sessions)
    at = _runs(commands.at)
    beginning_with = _runs(commands.beginning_with)
    ending_with = _runs(commands.ending_with)
    messages = _runs(commands.messages)
    message_position = _runs(commands.message_position)
    rest_of_turn = _runs(commands.rest_of_turn)
    snapshot = _runs(commands.snapshot)
    badges = _runs(commands.badges)
    lineage = _runs(commands.lineage)
    turn = _runs(commands.turn)
    last_turn = _runs(commands.last_turn)
    waiting = _runs(commands.waiting)
    calls = _runs(commands.calls)
    ledger = _runs(commands.ledger)
    addresses = _runs(commands.addresses)
    events_after = _runs(commands.events_after)
    feed = _runs(commands.feed)

    def search(
        self,
        text: str,
        *,
        owner: str,
        filter: SessionFilter = ANY,
        session: SessionId | None = None,
        limit: int = 20,
    ) -> SearchPage:
        """Find messages of people and agents, best first. Undone messages and other owners' are never found.

        Text before a compaction is found. The newest messages are indexed first, in a bounded number of
        steps. The page says how many messages are not indexed yet.

        Args:
            text: The words and quoted phrases to find.
            owner: The owner of the messages.
            filter: In which sessions.
            session: Only in this session.
            limit: How many messages the page has at most.

        Returns:
            The page.

        Raises:
            InvalidPayload: An argument is not valid.
            NotFound: `session` is not a session id.
        """
        check_kind("the search text", text, str)
        check_kind("filter", filter, SessionFilter)
        query = parse_query(text)
        only = None if session is None else check_session_id(session)
        check_limit(limit)

        def read_indexed(verb: Callable[[Transaction], T]) -> T:
            self._catch_up()  # Each time: ending the turn of a dead holder adds a message.
            return self._engine.read(verb)

        def found(tx: Transaction) -> SearchResult:
            return message_search.search(tx, owner, query, filter=check_filter(tx, filter), session=only, limit=limit)

        page, learned = self._look(read_indexed, found)
        if learned is not None:
            # A store that cannot be written ranks all matches each time.
            with suppress(StoreFull, StoreUnavailable):
                self._engine.write(partial(best_matches.keep, learned=learned), durable=False)
        return page

    # --- schedules --------------------------------------------------------------------------------------------------

    create_schedule = _runs(commands.create_schedule)
    schedules = _runs(commands.schedules)
    schedule = _runs(commands.schedule)
    schedule_log = _runs(commands.schedule_log)
    pause_schedule = _runs(commands.pause_schedule)
    resume_schedule = _runs(commands.resume_schedule)
    skip_schedule = _runs(commands.skip_schedule)
    run_schedule = _runs(commands.run_schedule)
    delete_schedule = _runs(commands.delete_schedule)
    due_schedules = _runs(commands.due_schedules)
    fire_schedule = _runs(commands.fire_schedule)
    fail_schedule = _runs(commands.fail_schedule)
    stop_schedule = _runs(commands.stop_schedule)

    def fire_due(self, agents: Collection[str]) -> DueTimes:
        """Decide about due times that have come, at most a hundred, and send the messages. Of all owners.

        A message that cannot be sent fails visibly, in the log of its schedule, and is not tried again.

        Args:
            agents: The agents that this worker serves. A collection that becomes empty ends the work.

        Returns:
            The next due time; and a schedule that is still due, if there are more of them.

        Raises:
            InvalidPayload: `agents` is not a list of names.
        """
        check_names("agents", agents)
        for one in self.run(commands.due_schedules()).due:
            # Checked each time: an app that closes fires nothing more.
            if len(agents):
                self._fire(one)
        return self.run(commands.due_schedules(limit=1))

    def _fire(self, one: DueSchedule) -> Schedule | None:
        try:
            return self.run(commands.fire_schedule(one.id, one.due, owner=one.owner))
        except (Conflict, NotFound, Rejected, CorruptRecord) as error:
            reason = str(error.args[0])
        try:
            return self.run(commands.fail_schedule(one.id, one.due, owner=one.owner, reason=reason))
        except (Rejected, CorruptRecord) as error:
            # The machine does not know the time zone, or the row is damaged: no other due time can be computed.
            return self.run(commands.stop_schedule(one.id, one.due, owner=one.owner, reason=str(error.args[0])))

    # --- tokens -----------------------------------------------------------------------------------------------------

    add_token = _runs(commands.add_token)
    token = _runs(commands.token)
    redeem = _runs(commands.redeem)
    tokens = _runs(commands.tokens)
    revoke_token = _runs(commands.revoke_token)

    # --- maintenance, for all owners --------------------------------------------------------------------------------

    forecast = _runs(commands.forecast)
    rebuild_index = _runs(commands.rebuild_index)
    set_search_languages = _runs(commands.set_search_languages)

    def reap(self) -> tuple[TurnId, ...]:
        """End every running turn whose holder is dead, each exactly once, however many processes do it."""
        dead = (row for row in self._running() if self._is_dead(row))
        ended = (self._reap_one(row.id, row.owner) for row in dead)
        return tuple(turn for turn in ended if turn is not None)

    def collect(self, *, keep_closed_for: float | None = None) -> Collected:
        """Close expired sessions, delete those closed long ago, and drop blobs that no message used within a day.

        The counts are exact, even if other processes collect or resolve meanwhile.

        Args:
            keep_closed_for: Delete sessions that were closed more than this many seconds ago; None: delete none.

        Returns:
            How much was closed, deleted and dropped.
        """
        from backstay.store.transfer import importer  # noqa: PLC0415  # few processes collect

        expired = self._until_done(partial(store_upkeep.expire_some, limit=100), 100)
        deleted = messages = 0
        if keep_closed_for is not None:
            deleted, messages = self._delete_closed(self._engine.now() - round(keep_closed_for * 1000))
        moment = self._engine.now() - DAY_MS
        dropped = self._until_done(partial(blob_store.drop_forgotten, moment=moment, limit=10), 10)
        importer.clear_given_up(self._engine)
        self._engine.run_upkeep()
        return Collected(expired=expired, deleted=deleted, messages=messages, blobs=dropped)

    def fold(self, *, older_than: float = 3600.0, progress: Callable[[int], None] | None = None) -> int:
        """Replace the deltas of ended turns by one row each.

        Args:
            older_than: How many seconds ago the turns ended at least.
            progress: Called after each step with the number of rows removed so far.

        Returns:
            How many rows were removed.
        """
        moment = self._engine.now() - round(older_than * 1000)
        removed = 0
        while True:
            fold = partial(store_upkeep.fold_some, moment=moment, limit=100)
            turns, rows = self._engine.write(fold, durable=False, read_first=True)
            removed += rows
            if progress is not None:
                progress(removed)
            if turns < 100:
                return removed

    def index(self, *, progress: Callable[[int], None] | None = None) -> int:
        """Bring the search index up to date, in small steps.

        Args:
            progress: Called after each step with the number of messages read so far.

        Returns:
            How many messages were read.
        """
        read = 0
        while self._engine.peek(message_search.lag):
            step = self._engine.write(partial(message_search.index, limit=200), durable=False)
            read += step
            if progress is not None:
                progress(read)
            if step < 200:
                break
        return read + self._stem(read, progress)

    # --- internal ---------------------------------------------------------------------------------------------------

    def _stem(self, read: int, progress: Callable[[int], None] | None) -> int:
        """Add the stems of messages that were indexed in other languages; how many messages that were."""
        stemmed = 0
        while step := self._engine.write(partial(message_search.stem, limit=200), durable=False, read_first=True):
            stemmed += step
            if progress is not None:
                progress(read + stemmed)
        return stemmed

    def _read(self, verb: Callable[[Transaction], T], /) -> T:
        return self._look(self._engine.read, verb)

    def _look(self, read: Callable[[Callable[[Transaction], Seen[T]]], Seen[T]], verb: Callable[[Transaction], T]) -> T:
        """The result of a verb that reads. If it met a dead holder, the turn is ended and the verb reads again.

        It also reads again if another process ended the turn. A store that cannot be written returns its stored state.
        """
        value, seen_leases = read(lambda tx: (verb(tx), tx.seen_leases))
        for _ in range(MOST_ATTEMPTS):
            if not seen_leases or not self._end_lost_turns(seen_leases):
                break
            value, seen_leases = read(lambda tx: (verb(tx), tx.seen_leases))
        return value

    def _end_lost_turns(self, seen_leases: Sequence[SeenLease]) -> bool:
        """End the turns whose holders are dead. Returns whether an earlier read of them is out of date."""
        lost = {lease.session: owner for owner, lease in seen_leases if self._engine.lapsed(lease)}
        try:
            for session, owner in lost.items():
                self._reap_one(session, owner)
        except (StoreFull, StoreUnavailable):
            return False
        return bool(lost)

    def _reap_one(self, session: SessionId, owner: str) -> TurnId | None:
        return self._engine.write(lambda tx: store_upkeep.reap_one(tx, session, owner))

    def _catch_up(self) -> None:
        """Index the newest messages, so that a search finds them.

        A long backlog is left to `index`; a store that cannot be written still searches its index. Either way the
        result has the number of messages that are not indexed yet.
        """
        for _ in range(CATCH_UP_STEPS):
            if not self._engine.peek(message_search.lag):
                return
            try:
                self._engine.write(partial(message_search.index, limit=200), durable=False)
            except (StoreFull, StoreUnavailable):
                return

    def _running(self) -> Iterator[SessionRow]:
        """Every session with a running turn, page by page."""
        after = ""
        while rows := self._engine.read(partial(session_queries.running_rows, after=after, limit=PAGE)):
            yield from rows
            after = rows[-1].id

    def _is_dead(self, row: SessionRow) -> bool:
        lease = row.lease()
        return lease is not None and self._engine.lapsed(lease)

    def _until_done(self, step: Callable[[Transaction], int], size: int) -> int:
        done = 0
        while True:
            count = self._engine.write(step, read_first=True)
            done += count
            if count < size:
                return done

    def _delete_closed(self, moment: int) -> tuple[int, int]:
        deleted = messages = 0
        while batch := self._engine.read(partial(store_upkeep.closed_before, moment=moment, limit=100)):
            for session, owner in batch:
                delete = partial(store_upkeep.delete_closed, session=session, owner=owner, moment=moment)
                counts = self._engine.write(delete, read_first=True)
                if counts is not None:
                    deleted, messages = deleted + 1, messages + counts.messages
        return deleted, messages
