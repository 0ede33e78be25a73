"""Search results."""

import msgspec

from backstay.model.content import Role
from backstay.model.ids import MessageId, SessionId, TurnId
from backstay.model.search.snippet import Snippet


class SearchHit(msgspec.Struct, frozen=True, kw_only=True):
    """A matching message, in a session where its owner can read it.

    Attributes:
        session: The session.
        title: The title of the session; None if it has none.
        message: The message.
        turn: The turn that added it; None if no turn did.
        role: user, assistant, tool, system or summary.
        at: When it was stored, in milliseconds since 1970 (UTC).
        snippet: The part of the message with the most wanted terms.
    """

    session: SessionId
    title: str | None
    message: MessageId
    turn: TurnId | None
    role: Role
    at: int
    snippet: Snippet


class SearchPage(msgspec.Struct, frozen=True, kw_only=True):
    """The best hits of a search.

    Attributes:
        hits: The hits, best first.
        lag: The number of messages that were not indexed yet, and so not found.
    """

    hits: tuple[SearchHit, ...]
    lag: int
