"""One model at one provider: sends requests over HTTP and yields the chunks of the streamed response."""

import asyncio
import ipaddress
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from types import MappingProxyType
from typing import Generic, NamedTuple

import httpx2
import msgspec

from backstay.agents.provider.transport.http_clients import Connections
from backstay.agents.provider.transport.provider_errors import ProviderFault, ProviderReply, quoted, status_of
from backstay.agents.provider.transport.sse import EventTooLarge, events
from backstay.agents.provider.transport.stream_chunk import ChunkT
from backstay.errors import AgentError, AgentFailed, AgentTimedOut, ConfigError

log = logging.getLogger("backstay.agents.provider.openai_compatible")

_HEADERS = {"content-type": "application/json", "accept": "text/event-stream", "accept-encoding": "identity"}
_MOST_OF_AN_ERROR = 64 * 1024
_MOST_OF_AN_EVENT = 1 << 20
# The connection can be reused only if the response is read to its end, which is on its way after the last chunk.
_DRAIN_SECONDS = 0.1


class ProviderApi(NamedTuple, Generic[ChunkT]):
    """The API of a provider: its path, its decoder and its headers.

    Attributes:
        path: The path and query of requests, after the base URL.
        decode: Decodes one event of the stream.
        headers: Returns the headers that carry the API key.
        common: Further headers of every request.
    """

    path: str
    decode: Callable[[bytes], ChunkT]
    headers: Callable[[str], dict[str, str]]
    common: Mapping[str, str] = MappingProxyType({})


class ModelEndpoint(Generic[ChunkT]):
    """The URL and model of a provider. Keeps the API key out of errors, logs and `repr`."""

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None,
        api: ProviderApi[ChunkT],
        *,
        connect_timeout: float = 10.0,
        read_timeout: float = 120.0,
    ) -> None:
        url = _checked_url(base_url)
        self.host = url.host
        self._model, self._key = model, _checked_key(api_key)
        # Errors are shown to users, so they do not name the host; the log, which operators read, does.
        self._where, self._address = f"the provider of {model}", url.netloc.decode()
        self._url, self._api = httpx2.URL(str(url).rstrip("/") + api.path), api
        self._connect_timeout, self._read_timeout = connect_timeout, read_timeout
        # A model on this machine is never reached through the proxy of the environment.
        self._trust_env = not _is_loopback(url.host)
        # Loading certificates is slow, and without TLS none are needed; redirects are not followed.
        self._verify = httpx2.create_ssl_context(trust_env=self._trust_env) if url.scheme == "https" else False
        self._connections = Connections(self._client)

    def __repr__(self) -> str:
        return f"Endpoint({str(self._url)!r}, {self._model!r})"

    async def request_chunks(self, body: bytes) -> AsyncGenerator[ChunkT, None]:
        """Send one request; yield the chunks of the response, or raise `ProviderFault`."""
        try:
            async with (
                self._connections.client() as client,
                client.stream("POST", self._url, content=body) as response,
            ):
                if response.status_code != 200:
                    raise await self._refusal(response)
                async with aclosing(self._chunks(response)) as chunks:
                    async for chunk in chunks:
                        yield chunk
        except httpx2.RequestError as error:
            fault = ProviderFault(self._broken(error), passing=True)
            self._report(fault)
            raise fault from error
        except ProviderFault as fault:
            self._report(fault)
            raise

    def _report(self, fault: ProviderFault) -> None:
        about = {"address": self._address, "model": self._model, "error": str(fault.error.args[0])}
        log.info("provider failed", extra=about)

    async def aclose(self) -> None:
        """Close every connection; a later request opens new ones."""
        await self._connections.aclose()

    def _client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers=_HEADERS | dict(self._api.common) | (self._api.headers(self._key) if self._key else {}),
            timeout=httpx2.Timeout(self._read_timeout, connect=self._connect_timeout, pool=None),
            # Each running turn may have a connection; the number of turns is limited elsewhere.
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
            verify=self._verify,
            trust_env=self._trust_env,
        )

    async def _chunks(self, response: httpx2.Response) -> AsyncGenerator[ChunkT, None]:
        ended = received_any = False
        incoming = response.aiter_bytes()
        async with aclosing(self._events(incoming)) as found:
            async for data in found:
                received_any = True
                if data.strip() == b"[DONE]":
                    ended = True
                    break
                chunk = self._read(data)
                ended = ended or chunk.ended
                yield chunk
        if not received_any:
            raise ProviderFault(self._no_stream(response))
        if not ended:
            raise ProviderFault(AgentFailed(f"{self._where} broke off the answer"), passing=True)
        await _drain(incoming)

    async def _events(self, incoming: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(events(incoming, _MOST_OF_AN_EVENT)) as found:
                async for data in found:
                    yield data
        except EventTooLarge as error:
            raise ProviderFault(
                AgentFailed(f"{self._where} sent more than {_MOST_OF_AN_EVENT:,} bytes at once")
            ) from error

    def _read(self, data: bytes) -> ChunkT:
        try:
            chunk = self._api.decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise ProviderFault(AgentFailed(f"{self._where} sent a chunk that cannot be read: {error}")) from error
        if chunk.error is not None:
            body = msgspec.json.encode({"error": chunk.error})
            raise self._answer(status_of(chunk.error), httpx2.Headers(), body).fault()
        return chunk

    async def _refusal(self, response: httpx2.Response) -> ProviderFault:
        body = bytearray()
        with suppress(httpx2.RequestError):
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > _MOST_OF_AN_ERROR:
                    break
        return self._answer(response.status_code, response.headers, bytes(body)).fault()

    def _answer(self, status: int, headers: httpx2.Headers, body: bytes) -> ProviderReply:
        return ProviderReply(
            where=self._where,
            model=self._model,
            status=status,
            headers=headers,
            message=quoted(body, self._key),
            with_key=self._key is not None,
        )

    def _broken(self, error: httpx2.RequestError) -> AgentError:
        match error:
            case httpx2.ConnectTimeout():
                return AgentTimedOut(f"{self._where} could not be reached within {self._connect_timeout:g} s")
            case httpx2.TimeoutException():
                return AgentTimedOut(f"{self._where} sent nothing for {self._read_timeout:g} s")
            case httpx2.ConnectError():
                hint = "Check base_url, the network, and that the provider runs."
                return AgentFailed(f"{self._where} cannot be reached: {error}", hint=hint)
            case _:
                return AgentFailed(f"the connection to {self._where} broke ({type(error).__name__})")

    def _no_stream(self, response: httpx2.Response) -> AgentFailed:
        kind = response.headers.get("content-type", "an unknown content type")[:64]
        return AgentFailed(
            f"{self._where} answered with {kind}, not with a stream of events",
            hint="Check that base_url is the base of the API, such as …/v1, and that the model can stream.",
        )


async def _drain(incoming: AsyncIterator[bytes]) -> None:
    """Read and ignore the rest of the response, so that the connection can be reused."""
    with suppress(TimeoutError, httpx2.RequestError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in incoming:
                pass


def _checked_url(base_url: str) -> httpx2.URL:
    """Return the URL; raise `ConfigError` if it is invalid, without repeating it: it may hold a password."""
    hint = "Use scheme, host and path, such as https://api.openai.com/v1; the key goes into api_key."
    try:
        url = httpx2.URL(base_url)
    except (httpx2.InvalidURL, TypeError) as error:
        raise ConfigError("base_url is not a URL", hint=hint) from error
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query or url.fragment:
        raise ConfigError("base_url must be a plain http or https URL", hint=hint)
    return url


def _checked_key(key: str | None) -> str | None:
    """Return the key; raise `ConfigError` if it is invalid, without repeating it."""
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key and key):
        raise ConfigError(
            "the API key is empty, or contains a space, a line end or an invalid character",
            hint="Copy it again, without quotes and line ends.",
        )
    return key


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
