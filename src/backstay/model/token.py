"""A token: what somebody shows to prove whose sessions they may see. Only its hash is ever stored."""

from typing import Literal

import msgspec

from backstay.model.ids import TokenId

# A program's own token, a browser that is signed in, and a link that signs one in, once.
TokenKind = Literal["api", "browser", "link"]


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a token; not the token."""

    id: TokenId
    owner: str
    name: str
    kind: TokenKind
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None
