"""The connection to a server: sends API calls, repeats those that may be repeated, and opens streams."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import httpx2
import msgspec

from backstay.client.api_call import ApiCall
from backstay.client.certificates import fault_of, trusted
from backstay.client.server_errors import error_of
from backstay.config import is_loopback
from backstay.errors import BackstayError, ConfigError, StoreUnavailable

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
# The most bytes of an answer that are read into memory.
_LONGEST_ANSWER = 256 << 20
_LONGEST_ERROR = 1 << 16
# The server sends a heartbeat every 15 seconds by default; a setting may make this longer.
SILENCE = 60.0


class Connection:
    """One server, accessed with one token. The token is sent to the origin of the URL only; redirects are errors."""

    def __init__(self, url: str, token: str, *, timeout: float, retry_seconds: float) -> None:
        self.base = base_url(url)
        if timeout <= 0 or retry_seconds < 0:
            raise ConfigError("a timeout of the client is not valid", hint="Give positive seconds.")
        if not token or not token.isascii() or not token.isprintable():
            raise ConfigError(
                "the token is empty or malformed", hint="Pass the text that `backstay tokens add` printed."
            )
        self._retry_seconds, self._timeout = retry_seconds, timeout
        self.client = httpx2.AsyncClient(
            base_url=self.base,
            headers={"authorization": f"Bearer {token}"},
            timeout=httpx2.Timeout(timeout, connect=min(timeout, 10.0)),
            follow_redirects=False,
            # A server on this machine is reached directly, without the proxy of the environment.
            trust_env=not is_loopback(self.base.host),
            verify=trusted(self.base),
        )

    async def close(self) -> None:
        """Close the sockets."""
        await self.client.aclose()

    async def run(self, call: ApiCall[T]) -> T:
        """Send a call and decode its answer.

        Raises:
            StoreUnavailable: The server does not answer. A call that may be repeated was repeated for a while.
            ConfigError: The certificate of the server is not trusted.
            BackstayError: The server rejected the call.
        """

        async def send() -> T:
            return decoded(await self._send(call), call.answer)

        return await (self.repeated(send) if call.may_repeat else send())

    async def repeated(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do something that may be done again, until the server answers or the time is over."""
        loop = asyncio.get_running_loop()
        until, pauses = loop.time() + self._retry_seconds, Pauses()
        while True:
            try:
                return await work()
            except StoreUnavailable:
                pause = next(pauses)
                if loop.time() + pause > until:
                    raise
            await asyncio.sleep(pause)

    async def _send(self, call: ApiCall[T]) -> bytes:
        request = self.client.build_request(
            call.method, call.path, params=call.query or None, headers=call.headers, content=call.payload
        )
        if call.seconds is not None:
            request.extensions["timeout"] = httpx2.Timeout(call.seconds, connect=10.0).as_dict()
        async with self._answered(request) as response:
            return await _limited(response.aiter_bytes(), _LONGEST_ANSWER)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        content: AsyncIterator[bytes] | None = None,
        silence: float | None = None,
    ) -> AsyncGenerator[httpx2.Response, None]:
        """Open a response that is read piece by piece.

        Raises:
            StoreUnavailable: The server does not answer, or the connection broke.
            BackstayError: The server rejected the request.
        """
        request = self.client.build_request(method, path, params=query, headers=headers, content=content)
        if silence is not None:
            request.extensions["timeout"] = httpx2.Timeout(silence, connect=10.0).as_dict()
        async with self._answered(request) as response:
            yield response

    @asynccontextmanager
    async def _answered(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Response, None]:
        try:
            response = await self.client.send(request, stream=True)
            try:
                if not response.is_success:
                    raise error_of(response.status_code, await _beginning(response.aiter_bytes(), _LONGEST_ERROR))
                yield response
            finally:
                await response.aclose()
        except httpx2.RequestError as error:
            untrusted = fault_of(error, self.base)
            if untrusted is not None:
                raise untrusted from error
            raise StoreUnavailable(_reason_of(error), hint=self._advice(error)) from error

    def _advice(self, error: httpx2.RequestError) -> str:
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            return f"Nothing was changed. Check that a server runs at {self.base}: `backstay serve` starts one."
        return "The request may have been executed: check before you repeat it."


class Pauses:
    """Delays that double up to a limit; each is drawn from the upper half of its range."""

    def __init__(self) -> None:
        self._longest = _FIRST_PAUSE

    def __next__(self) -> float:
        pause = self._longest * random.uniform(0.5, 1.0)  # noqa: S311  # no secret
        self._longest = min(self._longest * 2, _LONGEST_PAUSE)
        return pause


def base_url(url: str, named: str = "this") -> httpx2.URL:
    """The URL of a server, with a slash at its end. `named` is what an error calls it.

    Raises:
        ConfigError: It is not the URL of a server.
    """
    hint = "Write its address, such as http://127.0.0.1:8642"
    try:
        base = httpx2.URL(url.rstrip("/") + "/")
    except httpx2.InvalidURL as error:
        raise ConfigError(f"{named} is not a URL", hint=hint) from error
    if base.scheme not in ("http", "https") or not base.host or base.userinfo or base.query or base.fragment:
        raise ConfigError(f"{named} is not the URL of a server", hint=hint)
    return base


def decoded(content: bytes, kind: type[T]) -> T:
    """Decode an answer of the server."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BackstayError(
            "the server sent an invalid response",
            hint="Check that the URL is that of a Backstay server, and that it is not newer than this program.",
        ) from error


async def _limited(pieces: AsyncIterator[bytes], longest: int) -> bytes:
    content = await _beginning(pieces, longest + 1)
    if len(content) > longest:
        raise BackstayError(
            f"the server's answer has more than {longest:,} bytes", hint="Ask for less at once, such as fewer messages."
        )
    return content


async def _beginning(pieces: AsyncIterator[bytes], longest: int) -> bytes:
    """All bytes, or the first ones: a stream without an end does not fill the memory."""
    content = bytearray()
    async for piece in pieces:
        content += piece
        if len(content) >= longest:
            break
    return bytes(content[:longest])


def _reason_of(error: httpx2.RequestError) -> str:
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return "the server cannot be reached"
    return f"the connection to the server broke ({type(error).__name__})"
