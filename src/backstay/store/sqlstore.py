"""The store on an SQL engine: checks what comes in at the door, and hands each verb to the engine."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import msgspec

from backstay.errors import InvalidPayload, StoreFull, StoreUnavailable, TooLarge
from backstay.model.about import About, Load
from backstay.model.address import Address
from backstay.model.blob import Blob, check_hash
from backstay.model.chapter import Chapter, ChapterQuery, Glance
from backstay.model.codec import check_name, check_text
from backstay.model.content import Body, Content, Text, Thought, parts_of
from backstay.model.event import START, UNSEEN, Cursor, EventPage, FeedPage
from backstay.model.export import Export, Imported
from backstay.model.ids import (
    MessageId,
    SessionId,
    TokenId,
    TurnId,
    UploadId,
    WindowId,
    WorkerId,
    check_message_id,
    check_session_id,
    check_token_id,
    check_turn_id,
    check_upload_id,
    check_window_id,
)
from backstay.model.inspection import inspect
from backstay.model.limits import Limits
from backstay.model.marks import Marks
from backstay.model.message import MessagePage, NewMessage
from backstay.model.search import SearchPage
from backstay.model.searchtext import parse_query
from backstay.model.session import (
    Collected,
    Deleted,
    Filing,
    Forecast,
    Resolved,
    Session,
    SessionCursor,
    SessionFilter,
    SessionPage,
    TitleBy,
    Ttl,
)
from backstay.model.token import Token, TokenKind
from backstay.model.turn import (
    Accepted,
    Call,
    Checkpointed,
    Compacting,
    Finished,
    IfBusy,
    Mail,
    OpenTurn,
    Outcome,
    Recorded,
    Renewed,
    Rotated,
    Turn,
)
from backstay.model.window import Moved, Window
from backstay.store.door import Door, find, find_held
from backstay.store.engine import Engine, Pending, Transaction
from backstay.store.port import ANY, LATEST, NO_NOTES, NOTHING, Store
from backstay.store.verbs import (
    blobs,
    cancelling,
    chapters,
    compacting,
    deletion,
    events,
    exporting,
    history,
    importing,
    maintenance,
    marks,
    reading,
    resuming,
    retrying,
    running,
    search,
    sessions,
    submitting,
    tokens,
)
from backstay.store.verbs.submitting import Request

P = ParamSpec("P")
T = TypeVar("T")

PAGE = 1_000
DAY_MS = 86_400_000
CATCH_UP_STEPS = 10


class _Beginning:
    """An engine that begins writes instead of waiting for them; everything else is the engine's own."""

    def __init__(self, engine: Engine, on_done: Callable[[], None]) -> None:
        self._engine, self._on_done = engine, on_done

    def write(self, verb: Callable[[Transaction], T], *, durable: bool = True, alone: bool = False) -> Pending[T]:
        return self._engine.begin(verb, durable=durable, alone=alone, on_done=self._on_done)

    def __getattr__(self, name: str) -> Any:  # Any: whatever the engine has under this name
        return getattr(self._engine, name)


class SqlStore(Store):
    """Sessions on an SQL engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._limits = engine.limits

    @property
    def worker(self) -> WorkerId:
        return self._engine.worker

    def about(self) -> About:
        about = self._engine.about(self._read(reading.count))
        return msgspec.structs.replace(about, search_languages=self._read(search.spoken))

    def load(self) -> Load:
        return self._engine.peek(reading.load)

    def version(self) -> int:
        return self._engine.version()

    def heed(self, hint: Callable[[], None]) -> None:
        """Tell others at once of what is committed here, and call this, from another thread, when they tell of theirs.

        Hints get lost; only the version is the truth.
        """
        self._engine.heed(hint)

    def enter(self) -> None:
        """Let others see that this handle lives, before its first lease asks for it."""
        self._engine.enter()

    def begin(
        self,
        on_done: Callable[[], None],
        verb: Callable[Concatenate[Store, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Pending[T]:
        """Begin a verb that is a single write, such as `Store.submit`, without waiting for it."""
        engine = cast(Engine, _Beginning(self._engine, on_done))  # it is one, but for what `write` returns
        method = getattr(SqlStore(engine), verb.__name__)
        return cast(Pending[T], method(*args, **kwargs))  # `_Beginning` answers every write with its job

    def give_up(self, pending: Pending[T]) -> StoreUnavailable | None:
        """Stop waiting for a verb that was begun; the error to raise, or None if it runs already."""
        return self._engine.give_up(pending)

    @property
    def limits(self) -> Limits:
        """How much is accepted."""
        return self._limits

    @property
    def host(self) -> str:
        """What this machine is called in the addresses of its directories."""
        return self._engine.host

    @property
    def wait_seconds(self) -> float:
        """How long a caller should wait for a verb to begin."""
        return self._engine.wait_seconds

    def close(self) -> None:
        self._engine.close()

    # --- sessions ---------------------------------------------------------------------------------------------------

    def resolve(self, address: Address, *, owner: str, ttl: Ttl | None = None) -> Resolved:
        here = self._here(address)
        return self._write(sessions.resolve, here, self._owner(owner), ttl)

    def create(self, *, owner: str, ttl: Ttl | None = None, metadata: Mapping[str, str] = NO_NOTES) -> Session:
        return self._write(sessions.create, self._owner(owner), ttl, metadata)

    def touch(self, session: SessionId, *, owner: str) -> Session:
        return self._write(sessions.touch, check_session_id(session), owner)

    def rename(self, session: SessionId, title: str | None, *, owner: str, by: TitleBy = "person") -> Session:
        return self._write(sessions.rename, check_session_id(session), owner, title, by)

    def pin(self, session: SessionId, pinned: bool, *, owner: str) -> Session:
        return self._write(sessions.pin, check_session_id(session), owner, pinned)

    def archive(self, session: SessionId, archived: bool, *, owner: str) -> Session:
        return self._write(sessions.archive, check_session_id(session), owner, archived)

    def tag(self, session: SessionId, *, owner: str, add: Sequence[str] = (), remove: Sequence[str] = ()) -> Session:
        _names("add", add)
        _names("remove", remove)
        return self._write(sessions.tag, check_session_id(session), owner, add, remove)

    def file(self, session: SessionId, filing: Filing, *, owner: str, expect_revision: int | None = None) -> Session:
        _names("add_tags", filing.add_tags)
        _names("remove_tags", filing.remove_tags)
        return self._write(sessions.file, check_session_id(session), owner, filing, expect_revision)

    def point(self, address: Address, session: SessionId, *, owner: str) -> Session:
        return self._write(sessions.point, self._here(address), check_session_id(session), owner)

    def end(self, session: SessionId, *, owner: str, expect_revision: int | None = None) -> Session:
        return self._write(sessions.end, check_session_id(session), owner, expect_revision)

    def delete(self, session: SessionId, *, owner: str, expect_revision: int | None = None) -> Deleted:
        return self._write(deletion.delete, check_session_id(session), owner, expect_revision)

    # --- turns ------------------------------------------------------------------------------------------------------

    def submit(
        self,
        to: Address | SessionId,
        content: Content,
        *,
        owner: str,
        agent: str = "default",
        request_id: str | None = None,
        if_busy: IfBusy = "enqueue",
        expect_revision: int | None = None,
        ttl: Ttl | None = None,
        start: bool = False,
    ) -> Accepted:
        request = Request(
            to=self._target(to),
            owner=self._owner(owner),
            id=request_id,
            agent=agent,
            if_busy=if_busy,
            expect_revision=expect_revision,
            ttl=ttl,
            start=self._start(start),
        )
        return self._write(submitting.submit, request, parts_of(content))

    def steer(
        self, session: SessionId, content: Content, *, owner: str, agent: str = "default", request_id: str | None = None
    ) -> Accepted:
        return self.submit(session, content, owner=owner, agent=agent, request_id=request_id, if_busy="steer")

    def record(
        self,
        to: Address | SessionId,
        messages: Sequence[NewMessage],
        *,
        owner: str,
        request_id: str | None = None,
        if_busy: IfBusy = "enqueue",
        expect_revision: int | None = None,
        ttl: Ttl | None = None,
    ) -> Recorded:
        if if_busy not in ("enqueue", "reject"):
            raise InvalidPayload(f"record cannot {if_busy}", hint="Choose if_busy='enqueue' or 'reject'.")
        request = Request(
            to=self._target(to),
            owner=self._owner(owner),
            id=request_id,
            if_busy=if_busy,
            expect_revision=expect_revision,
            ttl=ttl,
        )
        return self._write(submitting.record, request, messages)

    def claim(
        self, agents: Collection[str], *, session: SessionId | None = None, owner: str | None = None
    ) -> OpenTurn | None:
        _names("agents", agents)
        self._start(True)
        if session is not None:
            return self._write(submitting.claim_in, check_session_id(session), self._owner(owner), agents)
        self.reap()
        return self._write(submitting.claim, agents, owner)

    def has_work(self, agents: Collection[str]) -> bool:
        _names("agents", agents)
        return self._read(submitting.has_work, agents) or bool(self.reap() and self._read(submitting.has_work, agents))

    def resume(self, turn: TurnId, *, owner: str) -> OpenTurn:
        self._start(True)
        return self._write(resuming.resume, check_turn_id(turn), owner)

    def interrupted(self, agents: Collection[str], *, within: float = 3600.0) -> tuple[tuple[TurnId, str], ...]:
        moment = self._engine.now() - round(within * 1000)
        return tuple(self._read(reading.interrupted, _names("agents", agents), moment))

    def renew(self, turn: OpenTurn) -> Renewed:
        return self._write(running.renew, turn)

    def mail(self, turn: OpenTurn) -> Mail:
        return self._engine.peek(lambda tx: find_held(tx, turn)).mail()

    def checkpoint(
        self,
        turn: OpenTurn,
        bodies: Sequence[Body],
        *,
        take_steering: bool = False,
        repeats: Mapping[str, int] = NOTHING,
    ) -> Checkpointed:
        only_deltas = not take_steering and all(isinstance(body, Text | Thought) for body in _bodies(bodies))
        verb = partial(running.checkpoint, turn=turn, bodies=bodies, take_steering=take_steering, repeats=repeats)
        return self._engine.write(verb, durable=not only_deltas)

    def finish(
        self,
        turn: OpenTurn,
        outcome: Outcome,
        *,
        bodies: Sequence[Body] = (),
        agents: Collection[str] = (),
        compact: bool = False,
    ) -> Finished:
        _names("agents", agents)
        then = compacting.begin if compact else partial(running.go_on, agents=agents)
        return self._write(running.finish, turn, _bodies(bodies), outcome, then)

    def cancel(self, turn: TurnId, *, owner: str, take: bool = False) -> Turn:
        return self._write(cancelling.cancel, check_turn_id(turn), owner, take)

    def edit_waiting(self, turn: TurnId, content: Content, *, owner: str) -> Turn:
        return self._write(cancelling.edit_waiting, check_turn_id(turn), owner, parts_of(content))

    def withdraw(self, turn: TurnId, *, owner: str) -> Turn:
        return self._write(cancelling.withdraw, check_turn_id(turn), owner)

    def reorder(
        self, session: SessionId, turns: Sequence[TurnId], *, owner: str, expect_revision: int | None = None
    ) -> tuple[Turn, ...]:
        order = tuple(check_turn_id(turn) for turn in _names("turns", turns))
        return self._write(cancelling.reorder, check_session_id(session), owner, order, expect_revision)

    def approve(self, turn: TurnId, call: str, *, owner: str, arguments_hash: str | None = None) -> Call:
        return self._write(
            cancelling.decide, check_turn_id(turn), call, owner, approved=True, arguments_hash=arguments_hash
        )

    def deny(self, turn: TurnId, call: str, *, owner: str, arguments_hash: str | None = None) -> Call:
        return self._write(
            cancelling.decide, check_turn_id(turn), call, owner, approved=False, arguments_hash=arguments_hash
        )

    def forget(self, turn: TurnId, *, owner: str) -> Turn:
        return self._write(marks.forget, check_turn_id(turn), owner)

    def requested(self, to: Address | SessionId, request_id: str, *, owner: str) -> Turn | None:
        name = check_name("the request id", request_id, self._limits.name_bytes)
        return self._read(submitting.requested, Request(to=self._target(to), owner=owner, id=name))

    # --- history ----------------------------------------------------------------------------------------------------

    def undo(self, session: SessionId, *, owner: str, expect_revision: int | None = None) -> Moved:
        return self._write(history.undo, check_session_id(session), owner, expect_revision)

    def omit(
        self,
        session: SessionId,
        message: MessageId,
        *,
        owner: str,
        keep: Collection[int] = (),
        expect_revision: int | None = None,
    ) -> Moved:
        where, what = check_session_id(session), check_message_id(message)
        return self._write(history.omit, where, owner, what, keep=tuple(keep), expect_revision=expect_revision)

    def redo(self, session: SessionId, *, owner: str, expect_revision: int | None = None) -> Moved:
        return self._write(history.redo, check_session_id(session), owner, expect_revision)

    def retry(
        self,
        session: SessionId,
        *,
        owner: str,
        agent: str | None = None,
        request_id: str | None = None,
        expect_revision: int | None = None,
        start: bool | Collection[str] = False,
    ) -> Accepted:
        request = Request(
            to=check_session_id(session),
            owner=self._owner(owner),
            id=request_id,
            agent=agent,
            expect_revision=expect_revision,
            start=self._start(bool(start)),
        )
        return self._write(retrying.retry, request, None if isinstance(start, bool) else start)

    def edit(
        self,
        session: SessionId,
        message: MessageId,
        content: Content,
        *,
        owner: str,
        agent: str | None = None,
        request_id: str | None = None,
        expect_revision: int | None = None,
        start: bool | Collection[str] = False,
    ) -> Accepted:
        request = Request(
            to=check_session_id(session),
            owner=self._owner(owner),
            id=request_id,
            agent=agent,
            expect_revision=expect_revision,
            start=self._start(bool(start)),
        )
        served = None if isinstance(start, bool) else start
        return self._write(retrying.edit, request, check_message_id(message), parts_of(content), served)

    def fork(self, session: SessionId, *, owner: str, at: MessageId | TurnId | None = None) -> Session:
        end = None if at is None else _checked_end(at)
        return self._write(history.fork, check_session_id(session), owner, end)

    def rotate(
        self,
        session: SessionId,
        summary: Sequence[NewMessage],
        *,
        owner: str,
        parent: WindowId,
        keep_from: int,
        turn: OpenTurn | None = None,
    ) -> Rotated:
        return self._write(
            history.rotate,
            check_session_id(session),
            owner,
            parent=check_window_id(parent),
            said=summary,
            keep_from=keep_from,
            turn=turn,
        )

    def compact(self, session: SessionId, *, owner: str, seen: MessagePage | None = None) -> Compacting:
        self._engine.enter()
        return self._write(compacting.compact, check_session_id(session), owner, seen)

    # --- export and import ------------------------------------------------------------------------------------------

    def export(self, session: SessionId, *, owner: str) -> Export:
        self._reap_if_running(check_session_id(session), owner)
        return self._read(exporting.export, session, owner)

    def import_session(self, export: Export, *, owner: str) -> Imported:
        if not isinstance(export, Export):
            raise InvalidPayload(f"{type(export).__name__} is no export", hint="Use Export.from_json(…).")
        # A document may have been put together by hand: what comes back from JSON has the types it claims.
        document = Export.from_json(export.to_json())
        inspect(document, self._limits)
        verb = partial(importing.import_session, export=document, owner=self._owner(owner))
        return self._engine.write(verb, alone=True)

    # --- marks and blobs --------------------------------------------------------------------------------------------

    def marks(self, session: SessionId, *, owner: str) -> Marks:
        return self._read(marks.get, check_session_id(session), owner)

    def save_draft(self, session: SessionId, text: str, *, owner: str) -> Marks:
        return self._write(marks.save_draft, check_session_id(session), owner, text)

    def mark_read(self, session: SessionId, number: int, *, owner: str) -> Marks:
        return self._write(marks.mark_read, check_session_id(session), owner, number)

    def begin_upload(self, *, owner: str) -> UploadId:
        return self._write(blobs.begin, self._owner(owner))

    def upload_chunk(self, upload: UploadId, start: int, data: bytes, *, owner: str) -> int:
        if not data:
            raise InvalidPayload("the chunk is empty")
        if len(data) > self._limits.chunk_bytes:
            raise TooLarge(
                f"the chunk has {len(data):,} bytes; at most {self._limits.chunk_bytes:,} are accepted",
                hint="Send the file in smaller chunks.",
            )
        verb = partial(blobs.add_chunk, upload=check_upload_id(upload), owner=owner, start=start, data=bytes(data))
        return self._engine.write(verb, alone=True)

    def finish_upload(self, upload: UploadId, *, owner: str, expected_hash: str | None = None) -> Blob:
        verb = partial(blobs.finish, upload=check_upload_id(upload), owner=owner, expected=expected_hash)
        return self._engine.write(verb, alone=True)

    def blob(self, hash: str, *, owner: str) -> Blob:
        return self._read(blobs.get, check_hash(hash), owner)

    def read_blob(self, hash: str, *, owner: str, start: int = 0, length: int = 1 << 20) -> bytes:
        return self._read(blobs.read, check_hash(hash), owner, start, length)

    # --- reading ----------------------------------------------------------------------------------------------------

    def session(self, session: SessionId, *, owner: str) -> Session:
        door = self._read(find, check_session_id(session), owner)
        if self._reap_if_gone(door):
            door = self._read(find, session, owner)
        return door.value(self._engine.now())

    def revision(self, session: SessionId, *, owner: str) -> int:
        return self._engine.peek(partial(reading.revision, session=check_session_id(session), owner=owner))

    def heads(self, watched: Collection[tuple[SessionId, str]]) -> dict[SessionId, int]:
        return self._read(reading.heads, watched)

    def list(
        self,
        *,
        owner: str,
        filter: SessionFilter = ANY,
        after: SessionCursor | None = None,
        limit: int = 50,
    ) -> SessionPage:
        _limit(limit)
        self._check_filter(filter)
        if after is not None:
            _kind("after", after, SessionCursor)
        verb = partial(reading.sessions, owner=owner, filter=filter, after=after, limit=limit)
        doors, more = self._engine.peek(verb)
        if [door for door in doors if self._reap_if_gone(door)]:
            doors, more = self._engine.peek(verb)
        now = self._engine.now()
        return SessionPage(sessions=tuple(door.value(now) for door in doors), next=more)

    def _check_filter(self, filter: SessionFilter) -> None:
        _kind("filter", filter, SessionFilter)
        for name in ("tag", "family", "place", "agent"):
            if (wanted := getattr(filter, name)) is not None:
                check_text(f"the {name} to filter by", wanted, self._limits.message_bytes)

    def at(self, address: Address, *, owner: str) -> Session:
        here = self._here(address)
        door = self._read(reading.at, here, owner)
        if self._reap_if_gone(door):
            door = self._read(reading.at, here, owner)
        return door.value(self._engine.now())

    def beginning_with(self, prefix: str, *, owner: str, limit: int = 20) -> tuple[Session, ...]:
        _limit(limit)
        _kind("the beginning of an id", prefix, str)
        if not prefix.isascii() or "\0" in prefix:
            return ()
        verb = partial(reading.beginning_with, prefix=prefix, owner=owner, limit=limit)
        doors = self._engine.peek(verb)
        if [door for door in doors if self._reap_if_gone(door)]:
            doors = self._engine.peek(verb)
        now = self._engine.now()
        return tuple(door.value(now) for door in doors)

    def messages(
        self,
        session: SessionId,
        *,
        owner: str,
        window: WindowId | None = None,
        before: int | None = None,
        after: int | None = None,
        last: int | None = None,
    ) -> MessagePage:
        for name, value in (("before", before), ("after", after), ("last", last)):
            if value is not None:
                _whole(name, value)
        self._reap_if_running(check_session_id(session), owner)
        return self._read(
            reading.messages_page,
            session,
            owner,
            None if window is None else check_window_id(window),
            before=before,
            after=after,
            last=last,
        )

    def place(self, session: SessionId, message: MessageId, *, owner: str) -> int:
        return self._read(reading.place, check_session_id(session), owner, check_message_id(message))

    def chapter(self, session: SessionId, query: ChapterQuery = LATEST, *, owner: str) -> Chapter:
        _kind("query", query, ChapterQuery)
        checked = _checked_query(query)
        door, chapter = self._read(chapters.chapter, check_session_id(session), owner, checked)
        if self._reap_if_gone(door):
            _, chapter = self._read(chapters.chapter, session, owner, checked)
        return chapter

    def glances(self, sessions: Sequence[SessionId], *, owner: str) -> tuple[Glance, ...]:
        return self._read(chapters.glances, [check_session_id(session) for session in sessions], owner)

    def lineage(self, session: SessionId, *, owner: str) -> tuple[Window, ...]:
        return self._read(reading.lineage, check_session_id(session), owner)

    def turn(self, turn: TurnId, *, owner: str) -> Turn:
        found = self._read(reading.turn, check_turn_id(turn), owner)
        if found.state == "running" and self._reap_if_running(found.session, owner):
            found = self._read(reading.turn, turn, owner)
        return found

    def waiting(self, session: SessionId, *, owner: str) -> tuple[Turn, ...]:
        self._reap_if_running(check_session_id(session), owner)
        return self._read(reading.waiting, session, owner)

    def calls(self, turn: TurnId, *, owner: str) -> tuple[Call, ...]:
        self.turn(turn, owner=owner)
        return self._read(reading.calls, turn, owner)

    def ledger(self, root: TurnId, *, owner: str) -> tuple[Call, ...]:
        self.turn(root, owner=owner)
        lines = self._read(reading.ledger, check_turn_id(root), owner)
        open_turns = {line.turn for line in lines if line.effect == "called"}
        if any(self.turn(turn, owner=owner).state == "ended" for turn in open_turns):
            lines = self._read(reading.ledger, root, owner)
        return lines

    def addresses(self, session: SessionId, *, owner: str) -> tuple[str, ...]:
        return self._read(reading.addresses, check_session_id(session), owner)

    def events_after(self, session: SessionId, cursor: Cursor = START, *, owner: str, limit: int = 500) -> EventPage:
        _limit(limit)
        _kind("cursor", cursor, Cursor)
        if _whole("number", cursor.number) < 0 or _whole("fence", cursor.fence) < UNSEEN:
            raise InvalidPayload("a cursor has no negative numbers")
        door, page = self._read(events.follow, check_session_id(session), owner, cursor, limit)
        if self._reap_if_gone(door):
            _, page = self._read(events.follow, session, owner, cursor, limit)
        return page

    def feed(self, position: int | None, *, owner: str, limit: int = 500) -> FeedPage:
        _limit(limit)
        if position is not None and _whole("position", position) < 0:
            raise InvalidPayload(f"position is {position!r}", hint="Pass the position of a feed event, or None.")
        return self._read(events.feed, owner, position, limit)

    def search(
        self,
        text: str,
        *,
        owner: str,
        filter: SessionFilter = ANY,
        session: SessionId | None = None,
        limit: int = 20,
    ) -> SearchPage:
        _kind("the search text", text, str)
        self._check_filter(filter)
        query = parse_query(text)
        only = None if session is None else check_session_id(session)
        _limit(limit)
        self._catch_up()
        return self._read(search.search, owner, query, filter=filter, session=only, limit=limit)

    # --- tokens -----------------------------------------------------------------------------------------------------

    def add_token(
        self, *, owner: str, name: str, hash: bytes, kind: TokenKind = "api", seconds: float | None = None
    ) -> Token:
        return self._write(tokens.add, self._owner(owner), _digest(hash), name=name, kind=kind, seconds=seconds)

    def token(self, hash: bytes) -> Token:
        return self._engine.peek(partial(tokens.get, hash=_digest(hash)))

    def redeem(self, link: bytes, *, hash: bytes, name: str, seconds: float) -> Token:
        return self._write(tokens.redeem, _digest(link), _digest(hash), name, seconds)

    def tokens(self, *, owner: str) -> tuple[Token, ...]:
        return self._read(tokens.of_owner, owner)

    def revoke_token(self, token: TokenId, *, owner: str) -> Token:
        return self._write(tokens.revoke, check_token_id(token), owner)

    # --- maintenance ------------------------------------------------------------------------------------------------

    def reap(self) -> tuple[TurnId, ...]:
        reaped: Sequence[TurnId] = ()
        after = ""
        while doors := self._read(reading.running_doors, after, PAGE):
            reaped = [*reaped, *(turn for door in doors if (turn := self._reap_one(door)))]
            after = doors[-1].id
        return tuple(reaped)

    def collect(self, *, keep_closed_for: float | None = None) -> Collected:
        expired = self._until_done(partial(maintenance.expire_some, limit=100), 100)
        deleted = messages = 0
        if keep_closed_for is not None:
            deleted, messages = self._delete_closed(self._engine.now() - round(keep_closed_for * 1000))
        moment = self._engine.now() - DAY_MS
        dropped = self._until_done(partial(blobs.drop_forgotten, moment=moment, limit=10), 10)
        self._engine.tidy()
        return Collected(expired=expired, deleted=deleted, messages=messages, blobs=dropped)

    def forecast(self, *, keep_closed_for: float | None = None, fold_older_than: float | None = None) -> Forecast:
        return self._read(maintenance.forecast, keep_closed_for, fold_older_than, forgotten=DAY_MS)

    def fold(self, *, older_than: float = 3600.0, progress: Callable[[int], None] | None = None) -> int:
        moment = self._engine.now() - round(older_than * 1000)
        gone = 0
        while True:
            turns, rows = self._engine.write(partial(maintenance.fold_some, moment=moment, limit=100), durable=False)
            gone += rows
            if progress is not None:
                progress(gone)
            if turns < 100:
                return gone

    def rebuild_index(self) -> None:
        self._engine.write(search.forget)

    def index(self, *, progress: Callable[[int], None] | None = None) -> int:
        read = 0
        while True:
            step = self._engine.write(partial(search.index, limit=200), durable=False)
            read += step
            if progress is not None:
                progress(read)
            if step < 200:
                return read + self._stem(read, progress)

    def set_search_languages(self, languages: Collection[str]) -> tuple[str, ...]:
        named = [
            check_name("a language", language, self._limits.name_bytes) for language in _names("languages", languages)
        ]
        return self._write(search.speak, named)

    # --- within -----------------------------------------------------------------------------------------------------

    def _stem(self, read: int, progress: Callable[[int], None] | None) -> int:
        """Give what was indexed in other languages its stems; how many messages that were."""
        stemmed = 0
        while step := self._engine.write(partial(search.stem, limit=200), durable=False):
            stemmed += step
            if progress is not None:
                progress(read + stemmed)
        return stemmed

    def _write(self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._engine.write(lambda tx: verb(tx, *args, **kwargs))

    def _read(self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._engine.read(lambda tx: verb(tx, *args, **kwargs))

    def _start(self, start: bool) -> bool:
        """Before this handle takes a lease, others must be able to see that it lives."""
        if start:
            self._engine.enter()
        return start

    def _here(self, address: Address) -> Address:
        if not isinstance(address, Address):
            raise InvalidPayload(
                f"{address!r} is not an address", hint="Use Address.chat, Address.workspace or .parse."
            )
        return address.on(self._engine.host)

    def _owner(self, owner: str | None) -> str:
        """The same owner, or a refusal: a session must belong to somebody who can be named."""
        return check_name("the owner", owner, self._limits.name_bytes)

    def _target(self, to: Address | SessionId) -> Address | SessionId:
        return self._here(to) if isinstance(to, Address) else check_session_id(to)

    def _catch_up(self) -> None:
        """Read the newest messages into the index, so that a search finds what was just said.

        A long backlog is left to `index`; a store that cannot be written still answers from what it has. Either way the
        answer says how far the index is behind.
        """
        for _ in range(CATCH_UP_STEPS):
            if not self._engine.peek(search.lag):
                return
            try:
                self._engine.write(partial(search.index, limit=200), durable=False)
            except (StoreFull, StoreUnavailable):
                return

    def _reap_if_gone(self, door: Door) -> TurnId | None:
        """For readers: end what the door shows as running if its holder is gone. Reading goes on if that cannot be."""
        try:
            return self._reap_one(door)
        except (StoreFull, StoreUnavailable):
            return None

    def _reap_one(self, door: Door) -> TurnId | None:
        lease = door.lease()
        if lease is None or not self._engine.lapsed(lease):
            return None
        return self._write(maintenance.reap_one, door.id, door.owner)

    def _reap_if_running(self, session: SessionId, owner: str) -> TurnId | None:
        return self._reap_if_gone(self._read(find, session, owner))

    def _until_done(self, step: Callable[[Transaction], int], size: int) -> int:
        done = 0
        while True:
            count = self._engine.write(step)
            done += count
            if count < size:
                return done

    def _delete_closed(self, moment: int) -> tuple[int, int]:
        deleted = messages = 0
        while batch := self._read(maintenance.closed_before, moment, 100):
            for session, owner in batch:
                gone = self._write(maintenance.delete_closed, session, owner, moment)
                if gone is not None:
                    deleted, messages = deleted + 1, messages + gone.messages
        return deleted, messages


def _names(what: str, names: Collection[str]) -> Collection[str]:
    """The same names. A str is a collection of its letters, and none of them was meant."""
    if isinstance(names, str | bytes) or not isinstance(names, Collection):
        raise InvalidPayload(f"{what} is {names!r}", hint=f"Pass a list of names: [{names!r}].")
    return names


def _bodies(bodies: Sequence[Body]) -> Sequence[Body]:
    if isinstance(bodies, str | bytes) or not isinstance(bodies, Sequence):
        raise InvalidPayload(f"bodies is {type(bodies).__name__}", hint="Pass a list of bodies.")
    return bodies


def _kind(what: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise InvalidPayload(f"{what} is {value!r}", hint=f"Pass a {kind.__name__}.")


def _whole(what: str, value: object) -> int:
    if type(value) is not int:
        raise InvalidPayload(f"{what} is {value!r}", hint="Pass a whole number.")
    return value


def _checked_end(at: MessageId | TurnId) -> MessageId | TurnId:
    """The same id, of a message or a turn, or `NotFound`."""
    return check_turn_id(at) if isinstance(at, str) and at.startswith("trn_") else check_message_id(at)


def _checked_query(query: ChapterQuery) -> ChapterQuery:
    """The same query, or a refusal: its ids are ids and its numbers numbers."""
    if query.before is not None:
        _whole("before", query.before)
    _limit(_whole("last", query.last))
    if query.window is not None:
        check_window_id(query.window)
    if query.around is not None:
        check_message_id(query.around)
    return query


def _digest(hash: bytes) -> bytes:
    """The same bytes, or a refusal: what is no SHA-256 must never be compared with one."""
    if not isinstance(hash, bytes) or len(hash) != 32:
        raise InvalidPayload("a token's hash is not 32 bytes", hint="Pass the SHA-256 of the token.")
    return hash


def _limit(limit: int) -> None:
    if not isinstance(limit, int) or not 1 <= limit <= PAGE:
        raise InvalidPayload(f"limit is {limit}", hint=f"Ask for 1 to {PAGE}.")
