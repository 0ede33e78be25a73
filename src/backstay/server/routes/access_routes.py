"""Access operations: create and revoke tokens, sign browsers in and out."""

from typing import Annotated

import msgspec
from msgspec import Meta

from backstay.errors import NotFound
from backstay.model.ids import TokenId
from backstay.model.token import Token, TokenAccess
from backstay.server.auth.authenticator import DAY, Caller
from backstay.server.http.api_request import ApiRequest, ApiResponse, NoInput
from backstay.server.http.operation import AnyOperation, Operation
from backstay.server.http.problems import Refused, forbidden
from backstay.store import commands


class NewToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The purpose of a token, its access, and the seconds until it expires; by default it does not expire."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    access: TokenAccess = "full"
    expires_in: Annotated[float, Meta(gt=0, le=3_153_600_000)] | None = None


class CreatedToken(msgspec.Struct, frozen=True, kw_only=True):
    """A new token with its secret, which is shown only once."""

    secret: str
    token: Token


class TokenList(msgspec.Struct, frozen=True, kw_only=True):
    """The caller's valid tokens."""

    tokens: tuple[Token, ...]


class SignIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The code of a sign-in link."""

    code: Annotated[str, Meta(max_length=200)]


class SignInLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link that signs in one browser, once. Browsers send the part after `#` to no server, so no log has it."""

    path: str


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """The caller and their rights. An operator sees information about all owners."""

    owner: str
    token: TokenId | None
    browser: bool
    access: TokenAccess
    operator: bool
    expires_at: int | None


async def who_am_i(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Return the owner and rights of the caller."""
    caller = call.caller
    return ApiResponse(
        value=Me(
            owner=caller.owner,
            token=caller.token,
            browser=caller.browser,
            access=caller.access,
            operator=caller.operator,
            expires_at=caller.expires_at,
        )
    )


async def list_tokens(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """List the caller's tokens."""
    return ApiResponse(value=TokenList(tokens=await call.run(commands.tokens(owner=call.owner))))


async def create_token(call: ApiRequest[NewToken, NoInput]) -> ApiResponse:
    """Create a token for the same owner. It expires no later than the API token that created it."""
    wanted, authenticator = call.body, call.service.authenticator
    secret, token = await authenticator.create_token(
        call.caller.owner,
        wanted.name,
        access=wanted.access,
        seconds=wanted.expires_in,
        expires_by=_end(call.caller),
    )
    return ApiResponse(value=CreatedToken(secret=secret, token=token))


async def revoke_token(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Revoke a token."""
    return ApiResponse(value=await call.run(commands.revoke_token(call.token, owner=call.owner)))


async def make_link(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Create a sign-in link for the same owner."""
    if _end(call.caller) is not None:
        raise forbidden(
            "a token that expires cannot sign a browser in", "Use a token that does not expire, or `backstay link`."
        )
    return ApiResponse(value=SignInLink(path=f"/login#{await call.service.authenticator.link(call.caller.owner)}"))


async def sign_in(call: ApiRequest[SignIn, NoInput]) -> ApiResponse:
    """Redeem a sign-in link. A new cookie replaces any old one, which prevents session fixation."""
    code, authenticator, settings = call.body.code, call.service.authenticator, call.service.settings
    try:
        secret = await authenticator.sign_in(code, _browser(call.request.headers.get("user-agent", "")))
    except NotFound as error:
        raise Refused(
            401, "link", "this link is no longer valid", hint="Create another link with `backstay link`."
        ) from error
    seconds = round(settings.sign_in_days * DAY)
    cookie = f"{authenticator.cookie}={secret}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}"
    return ApiResponse(headers={"set-cookie": cookie + ("; Secure" if settings.https else "")})


async def sign_out(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Revoke the browser's token and delete its cookie."""
    authenticator, caller = call.service.authenticator, call.caller
    if caller.browser and caller.token is not None:
        await authenticator.sign_out(caller.owner, caller.token)
    secure = "; Secure" if call.service.settings.https else ""
    return ApiResponse(
        headers={"set-cookie": f"{authenticator.cookie}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0{secure}"}
    )


def _end(caller: Caller) -> int | None:
    """When the caller's API token expires. A browser stands for a person, whose tokens may outlast the sign-in."""
    return None if caller.browser else caller.expires_at


def _browser(agent: str) -> str:
    """The name of a browser in the token list."""
    printable = "".join(letter for letter in agent if letter.isprintable())[:100].strip()
    return f"browser: {printable or 'unknown'}"


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/api/me",
        name="who_am_i",
        summary="Get the owner and rights of the caller.",
        run=who_am_i,
        body=NoInput,
        query=NoInput,
        answer=Me,
    ),
    Operation(
        method="GET",
        path="/api/tokens",
        name="list_tokens",
        summary="List the caller's tokens and signed-in browsers.",
        run=list_tokens,
        body=NoInput,
        query=NoInput,
        answer=TokenList,
    ),
    Operation(
        method="POST",
        path="/api/tokens",
        name="create_token",
        summary="Create a token for the same owner. Its secret is shown only once.",
        run=create_token,
        body=NewToken,
        query=NoInput,
        answer=CreatedToken,
        status=201,
    ),
    Operation(
        method="DELETE",
        path="/api/tokens/{token}",
        name="revoke_token",
        summary="Revoke a token everywhere.",
        run=revoke_token,
        body=NoInput,
        query=NoInput,
        answer=Token,
    ),
    Operation(
        method="POST",
        path="/api/links",
        name="make_link",
        summary="Create a link that signs in one browser, once, within 15 minutes.",
        run=make_link,
        body=NoInput,
        query=NoInput,
        answer=SignInLink,
        status=201,
    ),
    Operation(
        method="POST",
        path="/api/login",
        name="sign_in",
        summary="Exchange the code of a link for a cookie.",
        run=sign_in,
        body=SignIn,
        query=NoInput,
        status=204,
        public=True,
    ),
    Operation(
        method="POST",
        path="/api/logout",
        name="sign_out",
        summary="Sign the browser out: revoke its cookie.",
        run=sign_out,
        body=NoInput,
        query=NoInput,
        status=204,
    ),
)
