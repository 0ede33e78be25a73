"""Token authentication: converts the token or cookie of a request to its caller, and creates and revokes tokens.

A token is 256 random bits. The store has only its SHA-256 and looks the hash up, so neither a stolen database nor the
response time reveals a token. Every request reads the store, so a revoked token is rejected at once by every process.
"""

import hashlib
import re
import secrets

import msgspec

from backstay.config import Settings
from backstay.errors import NotFound, TokenExpired
from backstay.model.ids import TokenId
from backstay.model.token import Token, TokenAccess
from backstay.runtime.app import App
from backstay.store import commands

# All tokens have one recognisable form, so that secret scanners find them.
PREFIX = "bsk_"
_SHAPE = re.compile(r"bsk_[A-Za-z0-9_-]{43}", re.ASCII)
LINK_SECONDS = 900.0
DAY = 86_400.0


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


def new_secret() -> str:
    """Create an unguessable token."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(secret: str) -> bytes:
    """The hash of a token, which is all that the store has of it."""
    return hashlib.sha256(secret.encode()).digest()


def is_secret(text: str) -> bool:
    """Whether the text has the form of our tokens."""
    return _SHAPE.fullmatch(text) is not None


class Authenticator:
    """Authenticates callers, and creates and revokes their tokens."""

    def __init__(self, app: App, settings: Settings) -> None:
        self._app, self._settings = app, settings

    @property
    def cookie(self) -> str:
        """The cookie's name. Under HTTPS, the `__Host-` prefix makes browsers refuse this cookie from other hosts."""
        return "__Host-backstay" if self._settings.https else "backstay"

    async def caller(self, authorization: str | None, cookies: dict[str, str]) -> Caller | None:
        """The caller that this Authorization header or cookie authenticates; None if neither is valid.

        With `auth` off, every caller is the operator. An Authorization header takes precedence over the cookie.

        Raises:
            TokenExpired: The header has a token that has expired.
        """
        if not self._settings.auth:
            return Caller(owner=self._settings.owner, operator=True)
        if authorization is not None:
            scheme, _, secret = authorization.partition(" ")
            return await self._authenticate(secret.strip(), "api") if scheme.lower() == "bearer" else None
        try:
            return await self._authenticate(cookies.get(self.cookie, ""), "browser")
        except TokenExpired:
            return None  # The browser must sign in again, as with any invalid cookie.

    async def valid_token(self, hash: bytes) -> Token | None:
        """The valid token with this hash, or None.

        Raises:
            TokenExpired: The token has expired.
        """
        try:
            return await self._app.holder(hash)
        except TokenExpired:
            raise
        except NotFound:
            return None

    async def _authenticate(self, secret: str, kind: str) -> Caller | None:
        if not is_secret(secret):
            return None
        hashed = digest(secret)
        token = await self.valid_token(hashed)
        # A browser's token is not valid as an API token, nor the reverse: different checks (such as CSRF) apply to
        # each.
        if token is None or token.kind != kind:
            return None
        return Caller(
            owner=token.owner,
            operator=token.owner == self._settings.owner,
            token=token.id,
            hash=hashed,
            browser=kind == "browser",
            access=token.access,
            expires_at=token.expires_at,
        )

    # --- creating and revoking ----------------------------------------------------------------------------------------

    async def create_token(
        self, owner: str, name: str, *, access: TokenAccess, seconds: float | None, expires_by: int | None
    ) -> tuple[str, Token]:
        """Create a token for the owner. Returns the secret, which is not stored, and the token's record."""
        secret = new_secret()
        owned = self._app.owned_by(owner)
        token = await owned.run(
            commands.add_token(
                name=name, hash=digest(secret), access=access, seconds=seconds, expires_by=expires_by, owner=owned.owner
            )
        )
        return secret, token

    async def link(self, owner: str) -> str:
        """Create a code that signs in one browser, once, within 15 minutes."""
        code = new_secret()
        owned = self._app.owned_by(owner)
        await owned.run(
            commands.add_token(name="link", hash=digest(code), kind="link", seconds=LINK_SECONDS, owner=owned.owner)
        )
        return code

    async def sign_in(self, code: str, browser: str) -> str:
        """Redeem a sign-in code. Returns a new secret for the browser, which replaces any cookie it had."""
        secret = new_secret()
        await self._app.redeem(
            digest(code),
            hash=digest(secret),
            name=browser,
            seconds=self._settings.sign_in_days * DAY,
        )
        return secret

    async def sign_out(self, owner: str, token: TokenId) -> None:
        """Revoke the browser's token."""
        await self._app.owned_by(owner).run(commands.revoke_token(token, owner=owner))
