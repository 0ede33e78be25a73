"""Commands for the tokens with which clients authenticate at a server."""

from backstay.model.ids import TokenId, check_token_id
from backstay.model.token import Token, TokenAccess, TokenKind
from backstay.store.commands.command import Read, Write
from backstay.store.commands.input_checks import check_digest, check_owner
from backstay.store.verbs import token_store


def add_token(
    *,
    owner: str,
    name: str,
    hash: bytes,
    kind: TokenKind = "api",
    seconds: float | None = None,
    access: TokenAccess = "full",
    expires_by: int | None = None,
) -> Write[Token]:
    """Store a token of an owner. A token that exists already is returned unchanged, even if it was revoked.

    Args:
        owner: The owner that the token authenticates.
        name: A name for people.
        hash: The SHA-256 of the token's text.
        kind: The purpose of the token.
        seconds: How long it is valid; None: forever.
        access: With `read`, servers refuse every change.
        expires_by: When it expires at the latest, in milliseconds since 1970.

    Returns:
        The token.

    Raises:
        InvalidPayload: An argument is not valid.
    """
    digest = check_digest(hash)
    return Write(
        name="add_token",
        owner=owner,
        read_first=True,
        wakes=False,
        verb=lambda tx: token_store.add(
            tx,
            check_owner(tx, owner),
            digest,
            name=name,
            kind=kind,
            seconds=seconds,
            access=access,
            expires_by=expires_by,
        ),
    )


def token(hash: bytes) -> Read[Token]:
    """Find a token and its owner.

    Args:
        hash: The SHA-256 of the token's text.

    Returns:
        The token.

    Raises:
        NotFound: No owner has this token, or it was revoked.
        TokenExpired: The token has expired.
        InvalidPayload: The hash is not a SHA-256.
    """
    digest = check_digest(hash)
    return Read(name="token", owner=None, snapshot=False, verb=lambda tx: token_store.get(tx, digest))


def redeem(link: bytes, *, hash: bytes, name: str, seconds: float) -> Write[Token]:
    """Spend a link for a browser's token. A link is spent once.

    Args:
        link: The SHA-256 of the link's code.
        hash: The SHA-256 of the browser's token.
        name: A name for people.
        seconds: How long the browser's token is valid.

    Returns:
        The browser's token.

    Raises:
        NotFound: There is no such link, or it was spent.
        TokenExpired: The link has expired.
        InvalidPayload: An argument is not valid.
    """
    spent, digest = check_digest(link), check_digest(hash)
    return Write(
        name="redeem",
        owner=None,
        read_first=True,
        wakes=False,
        verb=lambda tx: token_store.redeem(tx, spent, digest, name, seconds),
    )


def tokens(*, owner: str | None) -> Read[tuple[Token, ...]]:
    """Read the valid tokens of an owner, or of all owners, without links.

    Args:
        owner: The owner of the tokens; None: all owners.

    Returns:
        The tokens.
    """
    return Read(name="tokens", owner=owner, verb=lambda tx: token_store.of_owner(tx, owner))


def revoke_token(token: TokenId, *, owner: str) -> Write[Token]:
    """Revoke a token, in every process.

    Args:
        token: The token.
        owner: The owner of the token.

    Returns:
        The token.

    Raises:
        NotFound: The owner has no such token.
    """
    which = check_token_id(token)
    return Write(
        name="revoke_token",
        owner=owner,
        read_first=True,
        wakes=False,
        verb=lambda tx: token_store.revoke(tx, which, owner),
    )
