"""A token: the secret that authenticates a client and names its owner. The store has only its hash."""

from typing import Literal

import msgspec

from backstay.model.ids import TokenId

# An API token of a program, the session of a browser, or a one-time link that signs a browser in.
TokenKind = Literal["api", "browser", "link"]
# Everything that the owner may do, or only reading.
TokenAccess = Literal["full", "read"]


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """Information about a token, without the token itself.

    Attributes:
        id: The id of the token; not secret.
        owner: The owner whose sessions it gives access to.
        name: A name for people.
        kind: "api" (a program), "browser" (a signed-in browser) or "link" (signs a browser in, once).
        created_at: In milliseconds since 1970 (UTC).
        expires_at: Likewise; None if it does not expire.
        revoked_at: Likewise; None if it was not revoked.
        access: "full", or "read".
    """

    id: TokenId
    owner: str
    name: str
    kind: TokenKind
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None
    access: TokenAccess = "full"
