"""The caller: the authenticated sender of a request."""

import msgspec

from backstay.model.ids import TokenId
from backstay.model.token import TokenAccess


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The owner whose data the caller may use, and their token; `browser` if the token came in a cookie.

    An `operator` is the owner for whom the server was started. Only operators see data that concerns all owners. With
    `access` "read", the caller may change nothing. `expires_at` is in milliseconds since 1970.
    """

    owner: str
    operator: bool
    token: TokenId | None = None
    hash: bytes | None = None
    browser: bool = False
    access: TokenAccess = "full"
    expires_at: int | None = None
