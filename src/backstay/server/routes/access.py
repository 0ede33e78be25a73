"""Access: tokens given and revoked, browsers signed in and out."""

from typing import Annotated

import msgspec
from msgspec import Meta

from backstay.errors import NotFound
from backstay.model.ids import TokenId
from backstay.model.token import Token
from backstay.server.call import Answer, Call, Nothing
from backstay.server.keys import DAY
from backstay.server.operation import AnyOperation, Operation
from backstay.server.problems import Refused
from backstay.store.port import Store


class NewToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the token is for."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]


class GivenToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token, shown this once."""

    secret: str
    token: Token


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """The caller's tokens that hold."""

    tokens: tuple[Token, ...]


class SignIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The code of a link."""

    code: Annotated[str, Meta(max_length=200)]


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A link that signs one browser in, once. What follows `#` is sent to no server and into no log."""

    path: str


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks."""

    owner: str
    token: TokenId | None
    browser: bool


async def who_am_i(call: Call[Nothing, Nothing]) -> Answer:
    """Whose sessions the caller sees."""
    caller = call.caller
    return Answer(value=Me(owner=caller.owner, token=caller.token, browser=caller.browser))


async def list_tokens(call: Call[Nothing, Nothing]) -> Answer:
    """The caller's tokens."""
    return Answer(value=Tokens(tokens=await call.owned.read(Store.tokens)))


async def give_token(call: Call[NewToken, Nothing]) -> Answer:
    """A new token for the same owner."""
    secret, token = await call.service.keys.give(call.caller.owner, call.body.name)
    return Answer(value=GivenToken(secret=secret, token=token))


async def revoke_token(call: Call[Nothing, Nothing]) -> Answer:
    """The token is worthless from now on."""
    return Answer(value=await call.owned.write(Store.revoke_token, call.token))


async def make_link(call: Call[Nothing, Nothing]) -> Answer:
    """A link for another browser of the same owner."""
    return Answer(value=Link(path=f"/login#{await call.service.keys.link(call.caller.owner)}"))


async def sign_in(call: Call[SignIn, Nothing]) -> Answer:
    """Spend a link. The browser's old cookie, if any, is replaced, so nobody can have chosen it for them."""
    code, keys, settings = call.body.code, call.service.keys, call.service.settings
    try:
        secret = await keys.sign_in(code, _browser(call.request.headers.get("user-agent", "")))
    except NotFound as error:
        raise Refused(401, "link", "this link no longer holds", hint="Make another with `backstay link`.") from error
    cookie = f"{keys.cookie}={secret}; Path=/; HttpOnly; SameSite=Strict; Max-Age={round(settings.sign_in_days * DAY)}"
    return Answer(headers={"set-cookie": cookie + ("; Secure" if settings.https else "")})


async def sign_out(call: Call[Nothing, Nothing]) -> Answer:
    """The browser's cookie is worthless from now on, and goes."""
    keys, caller = call.service.keys, call.caller
    if caller.browser and caller.token is not None:
        await keys.sign_out(caller.owner, caller.token)
    secure = "; Secure" if call.service.settings.https else ""
    return Answer(headers={"set-cookie": f"{keys.cookie}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0{secure}"})


def _browser(agent: str) -> str:
    """A name for a browser in the list of tokens."""
    told = "".join(letter for letter in agent if letter.isprintable())[:100].strip()
    return f"browser: {told or 'unknown'}"


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/api/me",
        name="who_am_i",
        summary="Whose sessions the caller sees.",
        run=who_am_i,
        body=Nothing,
        query=Nothing,
        answer=Me,
    ),
    Operation(
        method="GET",
        path="/api/tokens",
        name="list_tokens",
        summary="The caller's tokens and signed-in browsers.",
        run=list_tokens,
        body=Nothing,
        query=Nothing,
        answer=Tokens,
    ),
    Operation(
        method="POST",
        path="/api/tokens",
        name="give_token",
        summary="A new token for the same owner; its secret is shown this once.",
        run=give_token,
        body=NewToken,
        query=Nothing,
        answer=GivenToken,
        status=201,
    ),
    Operation(
        method="DELETE",
        path="/api/tokens/{token}",
        name="revoke_token",
        summary="Make a token worthless, everywhere, from now on.",
        run=revoke_token,
        body=Nothing,
        query=Nothing,
        answer=Token,
    ),
    Operation(
        method="POST",
        path="/api/links",
        name="make_link",
        summary="A link that signs one browser in, once, within a quarter of an hour.",
        run=make_link,
        body=Nothing,
        query=Nothing,
        answer=Link,
        status=201,
    ),
    Operation(
        method="POST",
        path="/api/login",
        name="sign_in",
        summary="Spend a link for a cookie.",
        run=sign_in,
        body=SignIn,
        query=Nothing,
        status=204,
        public=True,
    ),
    Operation(
        method="POST",
        path="/api/logout",
        name="sign_out",
        summary="Make the browser's cookie worthless.",
        run=sign_out,
        body=Nothing,
        query=Nothing,
        status=204,
    ),
)
