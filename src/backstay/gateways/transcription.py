"""Transcripts of audio files, by an endpoint like OpenAI's. The audio stays; without a transcript it is alone."""

import asyncio
import logging

import httpx2
import msgspec

log = logging.getLogger("backstay.gateways")

_PATH = "/audio/transcriptions"
# The message waits for its transcript, and its turn for the message.
_SECONDS = 30.0
_LONGEST = 20_000


class Transcription(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint for transcripts.

    Args:
        url: Its address, such as `https://api.openai.com/v1`.
        model: The name of the model.
        key: The key; empty: none.
    """

    url: str
    model: str = "whisper-1"
    key: str = ""

    def __repr__(self) -> str:
        return f"Transcription(url={self.url!r}, model={self.model!r})"

    async def transcript(self, name: str, media_type: str, data: bytes) -> str | None:
        """The text of an audio file. None: it has none, or the endpoint failed, which is logged."""
        if not media_type.startswith("audio/"):
            return None
        try:
            async with asyncio.timeout(_SECONDS):
                text = await self._ask(name, media_type, data)
        except (httpx2.HTTPError, msgspec.DecodeError, TimeoutError, OSError) as error:
            log.warning("%s has no transcript: %s: %s", name, type(error).__name__, error)
            return None
        plain = text.encode("utf-8", "replace").decode().replace("\0", " ").strip()
        return plain[:_LONGEST] or None

    async def _ask(self, name: str, media_type: str, data: bytes) -> str:
        headers = {"authorization": f"Bearer {self.key}"} if self.key else {}
        # In a thread: a client reads certificates from the disk.
        async with await asyncio.to_thread(httpx2.AsyncClient, headers=headers, timeout=_SECONDS) as client:
            answer = await client.post(
                self.url.rstrip("/") + _PATH,
                data={"model": self.model, "response_format": "json"},
                files={"file": (name, data, media_type)},
            )
            answer.raise_for_status()
        return msgspec.json.decode(answer.content, type=_Transcript).text


class _Transcript(msgspec.Struct):
    """The answer of the endpoint."""

    text: str
