"""Reads the bytes of attachments, at once or piece by piece."""

from collections.abc import AsyncGenerator

from backstay.errors import InvalidPayload, TooLarge
from backstay.model.blob import Blob
from backstay.model.content import Attachment
from backstay.runtime.async_store import AsyncStore
from backstay.store import commands

# The most bytes that are in memory at once while an attachment is streamed.
PIECE = 1 << 20


class AttachmentReader:
    """Reads the attachments of one owner."""

    def __init__(self, store: AsyncStore, owner: str) -> None:
        self._store, self._owner = store, owner

    async def read(self, attachment: Attachment, limit: int) -> bytes:
        """Read all bytes; raise `TooLarge` before the first read if there are more than `limit`."""
        blob = await self._find(attachment)
        if blob.size > limit:
            raise TooLarge(
                f"{attachment.name!r} has {blob.size:,} bytes, more than the limit of {limit:,}",
                hint="Raise the limit, or read the attachment in pieces.",
            )
        return b"".join([piece async for piece in self._pieces(blob)])

    async def pieces(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        """Read the bytes in pieces of at most `PIECE` bytes."""
        async for piece in self._pieces(await self._find(attachment)):
            yield piece

    async def _find(self, attachment: Attachment) -> Blob:
        """The blob of an attachment. Its true size counts: the sender of a message chose the size in the attachment."""
        if not isinstance(attachment, Attachment):
            raise InvalidPayload(
                f"{type(attachment).__name__} is not an attachment", hint="Pass an Attachment of a message's parts."
            )
        return await self._store.run(commands.blob(attachment.blob, owner=self._owner))

    async def _pieces(self, blob: Blob) -> AsyncGenerator[bytes, None]:
        for start in range(0, blob.size, PIECE):
            yield await self._store.run(commands.read_blob(blob.hash, owner=self._owner, start=start, length=PIECE))
