"""A caller: who asks, and by what that is known."""

import msgspec

from backstay.model.ids import TokenId


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Whose sessions may be seen, by which token; `browser` if that token came in a cookie."""

    owner: str
    token: TokenId | None = None
    hash: bytes | None = None
    browser: bool = False
