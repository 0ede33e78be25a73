"""Uploads a file as an attachment, chunk by chunk."""

import asyncio

from backstay.model.content import Attachment
from backstay.model.files.file_source import FileSource, media_type_of, name_of, opened
from backstay.runtime.async_store import AsyncStore
from backstay.store import commands


async def upload_file(
    store: AsyncStore, owner: str, file: FileSource, name: str | None, media_type: str | None
) -> Attachment:
    """Store the bytes of a file, and return the attachment that a message can carry.

    The file is read on a thread, one chunk at a time. An upload that is cut off, or that no message uses, is dropped
    after a day.
    """
    limits, title = store.limits, name or name_of(file)
    source = await asyncio.to_thread(opened, file, limits.blob_bytes)
    try:
        upload, size = await store.run(commands.begin_upload(owner=owner)), 0
        while chunk := await asyncio.to_thread(source.read, limits.chunk_bytes):
            size = await store.run(commands.upload_chunk(upload, size, chunk, owner=owner))
        blob = await store.run(commands.finish_upload(upload, owner=owner))
    finally:
        if source is not file:
            source.close()
    return Attachment(blob.hash, title, media_type or await guess_media_type(title), blob.size)


async def guess_media_type(name: str) -> str:
    """The media type that the ending of a file's name suggests."""
    # On a thread: the first guess reads the tables of the operating system.
    return await asyncio.to_thread(media_type_of, name)
