"""Tokens: added, looked up, redeemed and revoked. The store never sees a secret, only its hash."""

from backstay.errors import InvalidPayload, NotFound, TokenExpired
from backstay.model.codec import check_name
from backstay.model.ids import TokenId
from backstay.model.token import Token, TokenAccess, TokenKind
from backstay.store.engine import Transaction
from backstay.store.rows import Rows

_KINDS = ("api", "browser", "link")
_ACCESS = ("full", "read")
# How long an expired token is remembered, so that its user learns that it expired.
_REMEMBERED = 30 * 86_400_000
_LONGEST = 100 * 365 * 86_400.0

_BY_HASH = Rows("token_by_hash", Token)
_OF_OWNER = Rows("tokens_of", Token)
_OF_ALL = Rows("tokens_of_all", Token)
_BY_ID = Rows("token_of", Token)


def add(
    tx: Transaction,
    owner: str,
    hash: bytes,
    *,
    name: str,
    kind: TokenKind,
    seconds: float | None,
    access: TokenAccess = "full",
    expires_by: int | None = None,
) -> Token:
    """Store a token by its hash. A token that exists already is returned unchanged, revoked or not."""
    check_name("the token's name", name, tx.limits.name_bytes)
    if kind not in _KINDS:
        raise InvalidPayload(f"{kind!r} is not a kind of token", hint=f"Use one of {', '.join(_KINDS)}.")
    if access not in _ACCESS:
        raise InvalidPayload(f"{access!r} is not an access of tokens", hint=f"Use one of {', '.join(_ACCESS)}.")
    if seconds is not None and not 0 < seconds <= _LONGEST:
        raise InvalidPayload(f"a token cannot expire in {seconds!r} seconds", hint="Give a positive number, or none.")
    forgotten = tx.now - _REMEMBERED
    known = _BY_HASH.one(tx, hash=hash)
    if known is not None and not _expired(known, forgotten):
        return known
    tx.run("drop_expired_tokens", until=forgotten)
    tx.run(
        "add_token",
        token=tx.ids.token(),
        owner=owner,
        name=name,
        kind=kind,
        hash=hash,
        now=tx.now,
        expires_at=_end(tx.now, seconds, expires_by),
        access=access,
    )
    return _known(tx, hash)


def get(tx: Transaction, hash: bytes) -> Token:
    """Look up a valid token. Raises `NotFound` if it is unknown or revoked, and `TokenExpired`."""
    token = _known(tx, hash)
    if token.revoked_at is not None:
        raise NotFound("this token is no longer valid", hint="Create another one.")
    if token.expires_at is not None and token.expires_at <= tx.now:
        raise TokenExpired(token.expires_at)
    return token


def redeem(tx: Transaction, link: bytes, hash: bytes, name: str, seconds: float) -> Token:
    """Exchange a link, which works once, for the token of a browser. Raises `NotFound` if it was used."""
    spent = get(tx, link)
    if spent.kind != "link" or tx.one("revoke_token", token=spent.id, owner=spent.owner, now=tx.now) is None:
        raise NotFound("this link is no longer valid", hint="Create another one.")
    return add(tx, spent.owner, hash, name=name, kind="browser", seconds=seconds)


def of_owner(tx: Transaction, owner: str | None) -> tuple[Token, ...]:
    """The valid tokens of an owner, or of all, without links."""
    found = _OF_ALL.all(tx) if owner is None else _OF_OWNER.all(tx, owner=owner)
    return tuple(token for token in found if not _expired(token, tx.now))


def revoke(tx: Transaction, token: TokenId, owner: str) -> Token:
    """Revoke a token. Revoking it again changes nothing."""
    if _of(tx, token, owner).revoked_at is None:
        tx.one("revoke_token", token=token, owner=owner, now=tx.now)
    return _of(tx, token, owner)


def _of(tx: Transaction, token: TokenId, owner: str) -> Token:
    found = _BY_ID.one(tx, token=token, owner=owner)
    if found is None:
        raise NotFound(f"no token {token} of {owner!r}")
    return found


def _end(now: int, seconds: float | None, expires_by: int | None) -> int | None:
    ends = [expires_by, None if seconds is None else now + round(seconds * 1000)]
    return min((end for end in ends if end is not None), default=None)


def _expired(token: Token, moment: int) -> bool:
    return token.expires_at is not None and token.expires_at <= moment


def _known(tx: Transaction, hash: bytes) -> Token:
    found = _BY_HASH.one(tx, hash=hash)
    if found is None:
        raise NotFound("unknown token", hint="Create a token, or sign in again.")
    return found
