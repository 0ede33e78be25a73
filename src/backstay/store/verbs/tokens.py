"""Tokens: given, shown, spent and revoked. The secret itself is never seen here, only its hash."""

from backstay.errors import InvalidPayload, NotFound
from backstay.model.codec import check_name
from backstay.model.ids import TokenId
from backstay.model.token import Token, TokenKind
from backstay.store.engine import Row, Transaction

_KINDS = ("api", "browser", "link")


def add(tx: Transaction, owner: str, hash: bytes, *, name: str, kind: TokenKind, seconds: float | None) -> Token:
    """Remember a token by its hash. One that is known already is returned as it is, revoked or not."""
    check_name("the token's name", name, tx.limits.name_bytes)
    if kind not in _KINDS:
        raise InvalidPayload(f"{kind!r} is no kind of token", hint=f"Use one of {', '.join(_KINDS)}.")
    tx.run("drop_expired_tokens", now=tx.now)
    tx.run(
        "add_token",
        token=tx.ids.token(),
        owner=owner,
        name=name,
        kind=kind,
        hash=hash,
        now=tx.now,
        expires_at=None if seconds is None else tx.now + round(seconds * 1000),
    )
    return _known(tx, hash)


def get(tx: Transaction, hash: bytes) -> Token:
    """Whose token this is, if it still holds."""
    token = _known(tx, hash)
    if token.revoked_at is not None or (token.expires_at is not None and token.expires_at <= tx.now):
        raise NotFound("this token no longer holds", hint="Ask for a new one.")
    return token


def redeem(tx: Transaction, link: bytes, hash: bytes, name: str, seconds: float) -> Token:
    """Spend a link, once, for a browser's token."""
    spent = get(tx, link)
    if spent.kind != "link" or tx.one("revoke_token", token=spent.id, owner=spent.owner, now=tx.now) is None:
        raise NotFound("this link no longer holds", hint="Ask for a new one.")
    return add(tx, spent.owner, hash, name=name, kind="browser", seconds=seconds)


def of_owner(tx: Transaction, owner: str) -> tuple[Token, ...]:
    """The tokens an owner has given out and not revoked, links aside."""
    return tuple(
        token
        for row in tx.all("tokens_of", owner=owner)
        if (token := _value(row)).expires_at is None or token.expires_at > tx.now
    )


def revoke(tx: Transaction, token: TokenId, owner: str) -> Token:
    """Make a token worthless from now on; revoking it again changes nothing."""
    tx.one("revoke_token", token=token, owner=owner, now=tx.now)
    row = tx.one("token_of", token=token, owner=owner)
    if row is None:
        raise NotFound(f"no token {token} of {owner!r}")
    return _value(row)


def _known(tx: Transaction, hash: bytes) -> Token:
    row = tx.one("token_by_hash", hash=hash)
    if row is None:
        raise NotFound("nobody was given this token")
    return _value(row)


def _value(row: Row) -> Token:
    token, owner, name, kind, created_at, expires_at, revoked_at = row
    return Token(
        id=token,
        owner=owner,
        name=name,
        kind=kind,
        created_at=created_at,
        expires_at=expires_at,
        revoked_at=revoked_at,
    )
