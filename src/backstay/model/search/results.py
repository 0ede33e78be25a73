"""Search results."""

import msgspec

from backstay.model.content import Role
from backstay.model.ids import MessageId, SessionId, TurnId
from backstay.model.search.snippet import Snippet


class SearchHit(msgspec.Struct, frozen=True, kw_only=True):
    """A matching message, in a session where its owner can read it."""

    session: SessionId
    title: str | None
    message: MessageId
    turn: TurnId | None
    role: Role
    at: int
    snippet: Snippet


class SearchPage(msgspec.Struct, frozen=True, kw_only=True):
    """The best hits; `lag` is the number of messages that were not indexed yet."""

    hits: tuple[SearchHit, ...]
    lag: int
