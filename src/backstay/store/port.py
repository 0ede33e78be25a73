"""The port: what a store must do, whatever database it stands on. The docstrings are an implementer's duties.

Every verb is one transaction: when it returns it is durable, when it raises nothing has changed. Every verb that takes
a session, turn or blob takes its owner too; what belongs to another owner is `NotFound`, exactly like what does not
exist. A session whose running turn is held by a process that is gone is reaped by whoever meets it first, readers
included.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Self

from backstay.model.about import About, Load
from backstay.model.address import Address
from backstay.model.blob import Blob
from backstay.model.chapter import Chapter, ChapterQuery, Glance
from backstay.model.content import Body, Content
from backstay.model.event import START, Cursor, EventPage, FeedPage
from backstay.model.export import Export, Imported
from backstay.model.ids import MessageId, SessionId, TokenId, TurnId, UploadId, WindowId, WorkerId
from backstay.model.marks import Marks
from backstay.model.message import MessagePage, NewMessage
from backstay.model.search import SearchPage
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

ANY = SessionFilter()
LATEST = ChapterQuery()
NOTHING: Mapping[str, int] = {}
NO_NOTES: Mapping[str, str] = {}


class Store(ABC):
    """A durable store of sessions. One handle is one worker: the leases it takes are its own and die with it."""

    @property
    @abstractmethod
    def worker(self) -> WorkerId:
        """The name under which this handle holds leases."""

    @abstractmethod
    def about(self) -> About:
        """What this store is and how much it holds."""

    @abstractmethod
    def load(self) -> Load:
        """How much is going on in all sessions of all owners."""

    @abstractmethod
    def version(self) -> int:
        """A number that changes whenever anybody, in any process, has committed anything; cheap enough to poll."""

    @abstractmethod
    def close(self) -> None:
        """Finish what is under way and let go of all. Turns this handle still holds are then anyone's to reap."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- sessions ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def resolve(self, address: Address, *, owner: str, ttl: Ttl | None = None) -> Resolved:
        """The living session behind the address, and whether it was created, resumed or replaced.

        However many processes resolve the same new address at once, exactly one is told `created`. A session that has
        ended or expired is replaced by a new one with the next generation; it is never revived. Counts one mark of
        activity. Without a `ttl` the session keeps the one it has.
        """

    @abstractmethod
    def create(self, *, owner: str, ttl: Ttl | None = None, metadata: Mapping[str, str] = NO_NOTES) -> Session:
        """A new session to which no address leads. `metadata` are a program's own notes on it."""

    @abstractmethod
    def touch(self, session: SessionId, *, owner: str) -> Session:
        """Count one mark of activity. None is ever lost to a concurrent one."""

    @abstractmethod
    def rename(self, session: SessionId, title: str | None, *, owner: str, by: TitleBy = "person") -> Session:
        """Set the title. A person's title beats a generated one, in whatever order they arrive; None removes it."""

    @abstractmethod
    def pin(self, session: SessionId, pinned: bool, *, owner: str) -> Session:
        """Pin or unpin. Like every filing verb, writes nothing if nothing changes."""

    @abstractmethod
    def archive(self, session: SessionId, archived: bool, *, owner: str) -> Session:
        """Put away or bring back."""

    @abstractmethod
    def tag(self, session: SessionId, *, owner: str, add: Sequence[str] = (), remove: Sequence[str] = ()) -> Session:
        """Add and remove tags."""

    @abstractmethod
    def file(self, session: SessionId, filing: Filing, *, owner: str, expect_revision: int | None = None) -> Session:
        """Rename, pin, archive, tag and annotate at once, or nothing of it; metadata is replaced as a whole."""

    @abstractmethod
    def point(self, address: Address, session: SessionId, *, owner: str) -> Session:
        """Lead the address to this session from now on. Requests already accepted are still found."""

    @abstractmethod
    def end(self, session: SessionId, *, owner: str, expect_revision: int | None = None) -> Session:
        """End the session for good: cancels what runs and waits.

        It stays readable, can be forked, marked as read and deleted, and refuses every other write.
        """

    @abstractmethod
    def delete(self, session: SessionId, *, owner: str, expect_revision: int | None = None) -> Deleted:
        """Remove the session and what it said, from the search index too; keep what a surviving fork reads.

        Leaves a tombstone, so that whoever follows the session learns of it.
        """

    # --- turns ------------------------------------------------------------------------------------------------------

    @abstractmethod
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
        """Accept an input, in one transaction with all it needs: address, session, turn, message, lease.

        With `start`, this handle serves the agent: if nobody speaks, the turn starts under its lease. Otherwise the
        turn waits, durably, or does what `if_busy` says. A `request_id` that was accepted before returns the first turn
        and writes nothing, even if the address leads elsewhere by now; with other content it is `RequestMismatch`.
        """

    @abstractmethod
    def steer(
        self, session: SessionId, content: Content, *, owner: str, agent: str = "default", request_id: str | None = None
    ) -> Accepted:
        """Give the running turn another input; if it never takes it, it is the next turn."""

    @abstractmethod
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
        """Add the finished messages of a caller that runs its own agent, as one turn.

        Behind a running turn they wait (`enqueue`) or are refused (`reject`). A tool result that answers no open call
        is refused. A repeated request answers with the first turn and names no messages.
        """

    @abstractmethod
    def claim(
        self, agents: Collection[str], *, session: SessionId | None = None, owner: str | None = None
    ) -> OpenTurn | None:
        """Start a waiting turn for one of these agents: the oldest, or the next of one session. None: none waits.

        With an owner but no session, the oldest of that owner.

        Only a process that can run the agent may call this.
        """

    @abstractmethod
    def has_work(self, agents: Collection[str]) -> bool:
        """Whether `claim` for these agents would find something now; writes nothing."""

    @abstractmethod
    def resume(self, turn: TurnId, *, owner: str) -> OpenTurn:
        """Open a new turn that goes on for an interrupted one: same input, same root, same ledger.

        Only for the last turn of its session, and only while nothing runs or waits there.
        """

    @abstractmethod
    def interrupted(self, agents: Collection[str], *, within: float = 3600.0) -> tuple[tuple[TurnId, str], ...]:
        """Turns, with their owners, that `resume` could go on with: interrupted lately, and nothing said since."""

    @abstractmethod
    def renew(self, turn: OpenTurn) -> Renewed:
        """Keep the lease of a turn that has nothing to say. No event, no revision."""

    @abstractmethod
    def mail(self, turn: OpenTurn) -> Mail:
        """What waits for the holder, without writing anything; `LeaseLost` if it no longer holds the turn."""

    @abstractmethod
    def checkpoint(
        self,
        turn: OpenTurn,
        bodies: Sequence[Body],
        *,
        take_steering: bool = False,
        repeats: Mapping[str, int] = NOTHING,
    ) -> Checkpointed:
        """Store what the agent said since the last checkpoint; `LeaseLost` if the turn is no longer this holder's.

        Text and thoughts alone survive the death of the process; anything else survives power loss. With
        `take_steering` the waiting steering inputs become part of this turn before the agent sees them. `repeats` names
        the calls that are made again under the ordinal, and so the key, they had in an interrupted turn.
        """

    @abstractmethod
    def finish(
        self,
        turn: OpenTurn,
        outcome: Outcome,
        *,
        bodies: Sequence[Body] = (),
        agents: Collection[str] = (),
        compact: bool = False,
    ) -> Finished:
        """End the turn: all it said becomes messages. Starts the next waiting turn if its agent is among `agents`.

        With `compact`, a compaction is opened instead, under the lease already held: what waits goes on after it.
        """

    @abstractmethod
    def cancel(self, turn: TurnId, *, owner: str, take: bool = False) -> Turn:
        """Ask a turn to stop; a waiting one ends at once. With `take` the holder is fenced off and the turn ends now.

        What was said is kept. Cancelling what has ended changes nothing.
        """

    @abstractmethod
    def edit_waiting(self, turn: TurnId, content: Content, *, owner: str) -> Turn:
        """Change the input of a turn that still waits."""

    @abstractmethod
    def withdraw(self, turn: TurnId, *, owner: str) -> Turn:
        """Take back a turn that still waits."""

    @abstractmethod
    def reorder(
        self, session: SessionId, turns: Sequence[TurnId], *, owner: str, expect_revision: int | None = None
    ) -> tuple[Turn, ...]:
        """Let the turns that wait run in this order; unless it names each of them once, it is a `Conflict`."""

    @abstractmethod
    def approve(self, turn: TurnId, call: str, *, owner: str, arguments_hash: str | None = None) -> Call:
        """Allow a tool call that asked; refused if its arguments are not those with this hash."""

    @abstractmethod
    def deny(self, turn: TurnId, call: str, *, owner: str, arguments_hash: str | None = None) -> Call:
        """Forbid a tool call that asked."""

    @abstractmethod
    def forget(self, turn: TurnId, *, owner: str) -> Turn:
        """Mark an ended turn as one that is not to be shown by its name; what was said in it stays.

        Disturbs neither revision nor context.
        """

    @abstractmethod
    def requested(self, to: Address | SessionId, request_id: str, *, owner: str) -> Turn | None:
        """The turn that this request became when it was accepted; None if it never was. Writes nothing."""

    # --- history ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def undo(self, session: SessionId, *, owner: str, expect_revision: int | None = None) -> Moved:
        """Take the last turn back as a unit, across a compaction if need be. Refused while a turn runs or waits."""

    @abstractmethod
    def redo(self, session: SessionId, *, owner: str, expect_revision: int | None = None) -> Moved:
        """Bring back what the last undo took; possible until the next message."""

    @abstractmethod
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
        """Submit the last turn's input again, in a window from before it. The first answer stays in the lineage.

        With names for `start`, it starts only if its agent is among them.
        """

    @abstractmethod
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
        """Submit other content in place of a person's message, in a window from before its turn."""

    @abstractmethod
    def omit(
        self,
        session: SessionId,
        message: MessageId,
        *,
        owner: str,
        keep: Collection[int] = (),
        expect_revision: int | None = None,
    ) -> Moved:
        """Leave a message out of what the session reads from now on, or all of it but these parts, counted from 0.

        Opens a window like an edit does; the message stays in the lineage. Refused while a turn runs or waits, and for
        what a compaction has left behind.
        """

    @abstractmethod
    def fork(self, session: SessionId, *, owner: str, at: MessageId | TurnId | None = None) -> Session:
        """A new session from the ended turns of this one, up to and including a message or a turn. Always allowed.

        Copies no message; inherits no lease, queue, address or request id.
        """

    @abstractmethod
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
        """Open the window after `parent`: the summary, then all its messages from position `keep_from` on.

        What arrived after the summariser looked is kept. A window is compacted once: whoever comes second gets the
        window that the session reads by now, `won=False`. Within a turn its holder shows its proof.
        """

    @abstractmethod
    def compact(self, session: SessionId, *, owner: str, seen: MessagePage | None = None) -> Compacting:
        """Take the lease for a compaction: a turn without input in which nobody speaks, to be ended by `finish`.

        While a turn runs it is refused; while a compaction runs, that one is named and nothing is written. Who judged
        by what was `seen` that there is something to leave behind is refused when the session reads otherwise by now.
        """

    # --- export and import ------------------------------------------------------------------------------------------

    @abstractmethod
    def export(self, session: SessionId, *, owner: str) -> Export:
        """All that is known of the session, read at one moment, in a form that any store can import.

        With what it rests on of the sessions it was forked from, and the bytes of its attachments.
        """

    @abstractmethod
    def import_session(self, export: Export, *, owner: str) -> Imported:
        """Make an exported session one of this owner's, whole or not at all, as it was when it was exported.

        If one of its ids is taken here, all of them are made anew and its requests are no longer known: it is a copy.
        An address that leads elsewhere stays there. A turn that ran is interrupted; those that waited wait. The
        sessions it was forked from are as if they had been deleted here. A document that no store could have made is
        refused with `InvalidPayload` or `TooLarge`, naming the place.
        """

    # --- marks and blobs --------------------------------------------------------------------------------------------

    @abstractmethod
    def marks(self, session: SessionId, *, owner: str) -> Marks:
        """The owner's draft and read mark."""

    @abstractmethod
    def save_draft(self, session: SessionId, text: str, *, owner: str) -> Marks:
        """Keep an unfinished message. Disturbs neither revision nor context."""

    @abstractmethod
    def mark_read(self, session: SessionId, number: int, *, owner: str) -> Marks:
        """Everything up to this event was read; the mark only moves forward."""

    @abstractmethod
    def begin_upload(self, *, owner: str) -> UploadId:
        """Open an upload. One that is not finished is dropped after a day."""

    @abstractmethod
    def upload_chunk(self, upload: UploadId, start: int, data: bytes, *, owner: str) -> int:
        """Add bytes at `start`, in a transaction of their own; the size so far. Repeating a chunk is harmless."""

    @abstractmethod
    def finish_upload(self, upload: UploadId, *, owner: str, expected_hash: str | None = None) -> Blob:
        """Close an upload; from now on messages may refer to it. Equal bytes of one owner are stored once."""

    @abstractmethod
    def blob(self, hash: str, *, owner: str) -> Blob:
        """What is known of a blob."""

    @abstractmethod
    def read_blob(self, hash: str, *, owner: str, start: int = 0, length: int = 1 << 20) -> bytes:
        """A range of a blob's bytes."""

    # --- reading ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def session(self, session: SessionId, *, owner: str) -> Session:
        """The session as it is now; never shows a turn as running whose holder is gone."""

    @abstractmethod
    def revision(self, session: SessionId, *, owner: str) -> int:
        """The session's revision, as cheaply as the database can tell."""

    @abstractmethod
    def heads(self, watched: Collection[tuple[SessionId, str]]) -> dict[SessionId, int]:
        """The last event number of each of these sessions, given with their owners; what is not there is left out."""

    @abstractmethod
    def list(
        self,
        *,
        owner: str,
        filter: SessionFilter = ANY,
        after: SessionCursor | None = None,
        limit: int = 50,
    ) -> SessionPage:
        """Sessions, newest activity first. Does not touch messages; costs the same however many sessions there are."""

    @abstractmethod
    def at(self, address: Address, *, owner: str) -> Session:
        """The session that an address leads to, living or not; `NotFound` if it leads nowhere yet. Makes nothing."""

    @abstractmethod
    def beginning_with(self, prefix: str, *, owner: str, limit: int = 20) -> tuple[Session, ...]:
        """The sessions whose ids begin so, the older first. Costs the same however many sessions there are."""

    @abstractmethod
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
        """Messages of the current window or any other: all, or those between positions, or the last few of them."""

    @abstractmethod
    def place(self, session: SessionId, message: MessageId, *, owner: str) -> int:
        """The position of a message in the window that the session reads now; `NotFound` if it does not read it."""

    @abstractmethod
    def chapter(self, session: SessionId, query: ChapterQuery = LATEST, *, owner: str) -> Chapter:
        """A stretch of the session with all that is known of its turns, as it stands after `session.last_event`.

        Whoever follows the story from that number on misses nothing and is told nothing twice.
        """

    @abstractmethod
    def glances(self, sessions: Sequence[SessionId], *, owner: str) -> tuple[Glance, ...]:
        """What a list tells of these sessions besides their lines; those that are not the owner's are left out."""

    @abstractmethod
    def lineage(self, session: SessionId, *, owner: str) -> tuple[Window, ...]:
        """All windows of the session, oldest first."""

    @abstractmethod
    def turn(self, turn: TurnId, *, owner: str) -> Turn:
        """A turn as it is now."""

    @abstractmethod
    def waiting(self, session: SessionId, *, owner: str) -> tuple[Turn, ...]:
        """The turns that wait, in the order they will run."""

    @abstractmethod
    def calls(self, turn: TurnId, *, owner: str) -> tuple[Call, ...]:
        """The turn's tool calls and what is known of their effects."""

    @abstractmethod
    def ledger(self, root: TurnId, *, owner: str) -> tuple[Call, ...]:
        """The tool calls of a turn and of those that went on for it after an interruption, in order."""

    @abstractmethod
    def addresses(self, session: SessionId, *, owner: str) -> tuple[str, ...]:
        """The addresses that lead to the session."""

    @abstractmethod
    def events_after(self, session: SessionId, cursor: Cursor = START, *, owner: str, limit: int = 500) -> EventPage:
        """The story after a cursor: gapless and in order, or with an explicit word on why it is not."""

    @abstractmethod
    def feed(self, position: int | None, *, owner: str, limit: int = 500) -> FeedPage:
        """What was written to any of the owner's sessions after a position, in the order it was written.

        Without a position, an empty page that says where the feed ends now. Deltas that are folded later appear once
        more, as the fold: who has seen them knows by their numbers.
        """

    @abstractmethod
    def search(
        self,
        text: str,
        *,
        owner: str,
        filter: SessionFilter = ANY,
        session: SessionId | None = None,
        limit: int = 20,
    ) -> SearchPage:
        """Messages of people and agents that match, best first: never undone, never another owner's.

        Text that a compaction left behind is found. Reads what was just said into the index first, as far as a bounded
        number of steps allows, and says how far the index is still behind.
        """

    # --- tokens -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def add_token(
        self, *, owner: str, name: str, hash: bytes, kind: TokenKind = "api", seconds: float | None = None
    ) -> Token:
        """Remember a token of the owner by the SHA-256 of its text, for ever or for so many seconds.

        However many processes add the same one, it is added once; one that was revoked stays revoked.
        """

    @abstractmethod
    def token(self, hash: bytes) -> Token:
        """Whose token has this hash; `NotFound` if nobody's, or if it was revoked or its time is over."""

    @abstractmethod
    def redeem(self, link: bytes, *, hash: bytes, name: str, seconds: float) -> Token:
        """Spend the link with the first hash for a browser's token with the second; a link is spent once, ever."""

    @abstractmethod
    def tokens(self, *, owner: str) -> tuple[Token, ...]:
        """The owner's tokens that still hold, links aside."""

    @abstractmethod
    def revoke_token(self, token: TokenId, *, owner: str) -> Token:
        """Make a token worthless from now on, in every process."""

    # --- maintenance, for all owners --------------------------------------------------------------------------------

    @abstractmethod
    def reap(self) -> tuple[TurnId, ...]:
        """End every running turn whose holder is gone, each exactly once, whoever does it."""

    @abstractmethod
    def collect(self, *, keep_closed_for: float | None = None) -> Collected:
        """Close sessions whose time has run out; delete those closed for longer than so many seconds, if given.

        Also drops blobs that no message took for a day. The counts are exact, whoever else collects or resolves.
        """

    @abstractmethod
    def forecast(self, *, keep_closed_for: float | None = None, fold_older_than: float | None = None) -> Forecast:
        """What `collect` and `fold` would do now if they were told this; changes nothing."""

    @abstractmethod
    def fold(self, *, older_than: float = 3600.0, progress: Callable[[int], None] | None = None) -> int:
        """Replace the deltas of turns that ended so many seconds ago by one row each; how many rows went."""

    @abstractmethod
    def rebuild_index(self) -> None:
        """Forget the search index; `index` then fills it from the messages, which are all it was ever made of."""

    @abstractmethod
    def index(self, *, progress: Callable[[int], None] | None = None) -> int:
        """Bring the search index up to date, in small steps; how many messages it read."""

    @abstractmethod
    def set_search_languages(self, languages: Collection[str]) -> tuple[str, ...]:
        """From now on a word of a search also finds its other forms in these languages; which they are.

        It finds more by that, never less. A fact of the database, for everybody who searches it: messages that are
        indexed already follow when `index` is run next, the newest first. `ConfigError` for a language that the store
        does not know; on SQLite it knows none.
        """
