"""Keys: tokens and cookies as they come over the wire, turned into the caller they belong to.

A token is 256 random bits; the store knows its SHA-256 and compares that, so neither a stolen database nor the time an
answer takes tells anybody a token. Every request asks the store, so a revoked token holds nowhere from then on.
"""

import hashlib
import re
import secrets

from backstay.config import Settings
from backstay.errors import NotFound
from backstay.model.ids import TokenId
from backstay.model.token import Token
from backstay.runtime.app import App
from backstay.server.caller import Caller
from backstay.store.port import Store

# One shape, easy to find for those who scan files for secrets.
PREFIX = "bsk_"
_SHAPE = re.compile(r"bsk_[A-Za-z0-9_-]{43}", re.ASCII)
LINK_SECONDS = 900.0
DAY = 86_400.0


def new_secret() -> str:
    """A token that nobody can guess."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(secret: str) -> bytes:
    """What the store knows of a token."""
    return hashlib.sha256(secret.encode()).digest()


def is_secret(text: str) -> bool:
    """Whether this could be one of our tokens at all."""
    return _SHAPE.fullmatch(text) is not None


class Keys:
    """Who holds which token."""

    def __init__(self, app: App, settings: Settings) -> None:
        self._app, self._settings = app, settings

    @property
    def cookie(self) -> str:
        """The cookie's name; under TLS the browser itself keeps others from setting it."""
        return "__Host-backstay" if self._settings.https else "backstay"

    async def caller(self, authorization: str | None, cookies: dict[str, str]) -> Caller | None:
        """Whoever shows this header or this cookie; None if that proves nothing."""
        if not self._settings.auth:
            return Caller(owner=self._settings.owner)
        if authorization is not None:
            scheme, _, secret = authorization.partition(" ")
            return await self._known(secret.strip(), "api") if scheme.lower() == "bearer" else None
        return await self._known(cookies.get(self.cookie, ""), "browser")

    async def holder(self, hash: bytes) -> Token | None:
        """The token with this hash, if it holds."""
        try:
            return await self._app.unscoped.holder(hash)
        except NotFound:
            return None

    async def _known(self, secret: str, kind: str) -> Caller | None:
        if not is_secret(secret):
            return None
        known_by = digest(secret)
        token = await self.holder(known_by)
        # A browser's token is no API token and the other way round: each is checked by the rules of its own door.
        if token is None or token.kind != kind:
            return None
        return Caller(owner=token.owner, token=token.id, hash=known_by, browser=kind == "browser")

    # --- giving and taking ------------------------------------------------------------------------------------------

    async def give(self, owner: str, name: str) -> tuple[str, Token]:
        """A new token of the owner: the secret, which is never seen again, and what is known of it."""
        secret = new_secret()
        token = await self._app.owned_by(owner).write(Store.add_token, name=name, hash=digest(secret))
        return secret, token

    async def link(self, owner: str) -> str:
        """A code that signs one browser in, once, soon."""
        code = new_secret()
        owned = self._app.owned_by(owner)
        await owned.write(Store.add_token, name="link", hash=digest(code), kind="link", seconds=LINK_SECONDS)
        return code

    async def sign_in(self, code: str, browser: str) -> str:
        """Spend a link. The browser gets a new secret, whatever it had before."""
        secret = new_secret()
        await self._app.unscoped.redeem(
            digest(code),
            hash=digest(secret),
            name=browser,
            seconds=self._settings.sign_in_days * DAY,
        )
        return secret

    async def sign_out(self, owner: str, token: TokenId) -> None:
        """The browser's secret is worthless from now on."""
        await self._app.owned_by(owner).write(Store.revoke_token, token)
