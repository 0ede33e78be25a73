"""A server as a command sees it: the operations of a store, each of which waits for the answer."""

from collections.abc import Sequence
from typing import BinaryIO, Self

from backstay.cli.session_store import Progress
from backstay.client import api_calls
from backstay.client.blocking_client import BlockingClient, BlockingSessionClient, BlockingTurnClient
from backstay.errors import NothingToDo
from backstay.model.addresses.address import Address
from backstay.model.documents.document import Imported
from backstay.model.event import START, Cursor, EventPage, FeedPage
from backstay.model.history.snapshot import SessionBadge
from backstay.model.ids import MessageId, SessionId, TurnId, WindowId
from backstay.model.message import MessagePage
from backstay.model.search.results import SearchPage
from backstay.model.session import Deleted, SessionCursor, SessionFilter, SessionInfo, SessionPage
from backstay.model.turn import ToolCallRecord, TurnInfo
from backstay.model.window import Moved, Window

_ANY = SessionFilter()


def _quiet(stage: str, done: int, of: int) -> None:
    """Ignore the progress."""


class ServerStore:
    """The sessions of a token's owner; `owner` of every method is that of the token, not the one that is passed."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client

    def __enter__(self) -> Self:
        self._client.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._client.__exit__(None, None, None)

    def session(self, session: SessionId, *, owner: str) -> SessionInfo:
        return self._session(session).read()

    def at(self, address: Address, *, owner: str) -> SessionInfo:
        return self._client.at(address)

    def beginning_with(self, prefix: str, *, owner: str, limit: int = 20) -> tuple[SessionInfo, ...]:
        return self._client.beginning_with(prefix, limit=limit)

    def ending_with(self, letters: str, *, owner: str, limit: int = 20) -> tuple[SessionInfo, ...]:
        return self._client.run(api_calls.ending_with(letters, limit)).sessions

    def list(
        self, *, owner: str, filter: SessionFilter = _ANY, after: SessionCursor | None = None, limit: int = 50
    ) -> SessionPage:
        return self._client.sessions(filter, after=after, limit=limit)

    def badges(self, sessions: Sequence[SessionId], *, owner: str) -> tuple[SessionBadge, ...]:
        return self._client.run(api_calls.badges(sessions)).badges

    def search(
        self,
        text: str,
        *,
        owner: str,
        filter: SessionFilter = _ANY,
        session: SessionId | None = None,
        limit: int = 20,
    ) -> SearchPage:
        return self._client.search(text, filter=filter, session=session, limit=limit)

    def lineage(self, session: SessionId, *, owner: str) -> tuple[Window, ...]:
        return self._session(session).lineage()

    def messages(
        self, session: SessionId, *, owner: str, window: WindowId | None = None, last: int | None = None
    ) -> MessagePage:
        # The position of the window is read first: messages that arrive between the two reads are not counted.
        page = self._client.run(api_calls.messages(session, window, None, 1))
        found = self._session(session).messages(window=page.window, last=last)
        return MessagePage(window=page.window, length=max(page.length, len(found)), messages=found)

    def addresses(self, session: SessionId, *, owner: str) -> tuple[str, ...]:
        return self._session(session).addresses()

    def turn(self, turn: TurnId, *, owner: str) -> TurnInfo:
        return self._client.run(api_calls.turn(turn))

    def last_turn(self, session: SessionId, *, owner: str) -> TurnInfo:
        """Return the newest of the turns that answer the last input; raise `NothingToDo` if there is none."""
        turns = [message.turn for message in self._session(session).messages(last=1) if message.turn is not None]
        if not turns:
            raise NothingToDo(f"{session} has no turn yet", hint="Send a message first.")
        return self._continuations(turns[-1])[-1]

    def ledger(self, root: TurnId, *, owner: str) -> tuple[ToolCallRecord, ...]:
        return tuple(call for turn in self._continuations(root) for call in self.calls(turn.id, owner=owner))

    def _continuations(self, root: TurnId) -> Sequence[TurnInfo]:
        """The turn, and the turns that continued it, in order."""
        turns = [self.turn(root, owner="")]
        while (following := turns[-1].continued_by) is not None:
            turns.append(self.turn(following, owner=""))
        return turns

    def calls(self, turn: TurnId, *, owner: str) -> tuple[ToolCallRecord, ...]:
        return self._client.run(api_calls.calls(turn)).calls

    def approve(
        self, turn: TurnId, call: str, *, owner: str, arguments_hash: str | None = None, run_again: bool = False
    ) -> ToolCallRecord:
        return self._turn(turn).approve(call, arguments_hash=arguments_hash, run_again=run_again)

    def deny(self, turn: TurnId, call: str, *, owner: str, arguments_hash: str | None = None) -> ToolCallRecord:
        return self._turn(turn).deny(call, arguments_hash=arguments_hash)

    def waiting(self, session: SessionId, *, owner: str) -> tuple[TurnInfo, ...]:
        return self._session(session).waiting()

    def withdraw(self, turn: TurnId, *, owner: str) -> TurnInfo:
        return self._turn(turn).withdraw()

    def release(self, turn: TurnId, *, owner: str) -> TurnInfo:
        return self._turn(turn).release()

    def undo(self, session: SessionId, *, owner: str, expect_revision: int | None = None) -> Moved:
        return self._session(session).undo(expect_revision=expect_revision)

    def redo(self, session: SessionId, *, owner: str, expect_revision: int | None = None) -> Moved:
        return self._session(session).redo(expect_revision=expect_revision)

    def fork(self, session: SessionId, *, owner: str, at: MessageId | TurnId | None = None) -> SessionInfo:
        return self._session(session).fork(at).read()

    def rename(self, session: SessionId, title: str | None, *, owner: str) -> SessionInfo:
        return self._session(session).rename(title)

    def pin(self, session: SessionId, pinned: bool, *, owner: str) -> SessionInfo:
        return self._session(session).pin(pinned)

    def archive(self, session: SessionId, archived: bool, *, owner: str) -> SessionInfo:
        return self._session(session).archive(archived)

    def tag(
        self, session: SessionId, *, owner: str, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> SessionInfo:
        return self._session(session).tag(add=add, remove=remove)

    def end(self, session: SessionId, *, owner: str) -> SessionInfo:
        return self._session(session).end()

    def delete(self, session: SessionId, *, owner: str) -> Deleted:
        return self._session(session).delete()

    def events_after(self, session: SessionId, cursor: Cursor = START, *, owner: str) -> EventPage:
        return self._client.run(api_calls.events_after(session, cursor))

    def feed(self, position: int | None, *, owner: str) -> FeedPage:
        return self._client.run(api_calls.feed(position))

    def export_to(self, session: SessionId, file: BinaryIO, *, owner: str, progress: Progress = _quiet) -> int:
        return self._session(session).export_to(file)

    def import_session(
        self, export: BinaryIO, *, owner: str, addresses: bool = False, progress: Progress = _quiet
    ) -> Imported:
        return self._client.import_session(export, addresses=addresses)

    def _session(self, session: SessionId) -> BlockingSessionClient:
        return self._client.handle(session)

    def _turn(self, turn: TurnId) -> BlockingTurnClient:
        return self._client.turn(turn)
