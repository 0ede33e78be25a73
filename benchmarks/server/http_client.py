"""A minimal HTTP client, which costs so little that the server is measured."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Self


class HttpClient:
    """One persistent connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
        self._reader, self._writer = reader, writer
        self._common = f"Host: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"

    @classmethod
    async def connect(cls, port: int, token: str) -> Self:
        """Connect."""
        return cls(*await asyncio.open_connection("127.0.0.1", port), token)

    async def post(self, path: str, body: bytes = b"{}") -> Any:  # Any: the JSON of the response
        """Send a request and wait for the response."""
        head = f"POST {path} HTTP/1.1\r\n{self._common}Content-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        headers = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        size = int(headers.partition(b"content-length: ")[2].split(b"\r\n")[0])
        return json.loads(await self._reader.readexactly(size))

    async def follow(self, session: str) -> AsyncIterator[bytes]:
        """The frames of a session as they arrive; this connection is used for nothing else from now on."""
        self._writer.write(f"GET /api/events?sessions={session} HTTP/1.1\r\n{self._common}\r\n".encode())
        await self._reader.readuntil(b"\r\n\r\n")
        while size := int(await self._reader.readline(), 16):
            yield await self._reader.readexactly(size)
            await self._reader.readline()

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()
