"""What a search finds."""

import msgspec

from backstay.model.content import Role
from backstay.model.ids import MessageId, SessionId, TurnId
from backstay.model.snippet import Snippet


class SearchHit(msgspec.Struct, frozen=True, kw_only=True):
    """A message that matches, in the session in which its owner can read it."""

    session: SessionId
    title: str | None
    message: MessageId
    turn: TurnId | None
    role: Role
    at: int
    snippet: Snippet


class SearchPage(msgspec.Struct, frozen=True, kw_only=True):
    """The best hits, and how many messages the index had not read when it answered."""

    hits: tuple[SearchHit, ...]
    lag: int
