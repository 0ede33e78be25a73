"""Images and files in items: stored as attachments before the items are parsed. Nothing is ever fetched from a URL."""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from backstay.errors import NotFound
from backstay.model.content import Attachment
from backstay.runtime.attachments.file_upload import guess_media_type
from backstay.runtime.owner_sessions import OwnerSessions
from backstay.server.openai.encoding.items import Value
from backstay.server.openai.openai_errors import BadParameter
from backstay.store import commands

_DATA_URL = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+)?(?:;[\w.+-]+=[^;,]*)*(?P<base64>;base64)?,", re.ASCII)
_SIGNATURES = {
    b"\x89PNG\r\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"%PDF-": "application/pdf",
}
_OCTETS = "application/octet-stream"
_UPLOAD = "Send the bytes as a data URL, or upload them under /api/uploads and send the hash as file_id."


class FileKey(NamedTuple):
    """A file in an item, as it is written there."""

    type: str
    file_id: str
    filename: str | None


Files = Mapping[FileKey, Attachment]


class StoredItems(NamedTuple):
    """Items in which every file is a reference to a stored one, and the attachments of these references."""

    items: list[Value]
    files: Files


class _Source(NamedTuple):
    """A file as a client sends it: its bytes, an id or a URL. `field` is the field that has them."""

    type: str
    field: str
    data: str | None = None
    file_id: str | None = None
    url: str | None = None
    filename: str | None = None
    detail: str | None = None
    media_type: str | None = None


async def store_files(owned: OwnerSessions, items: Sequence[Value], *, param: str, strict: bool) -> StoredItems:
    """Store the files of these items. With `strict`, a file that cannot be stored is rejected.

    Without it, such a file stays in its item, as the client sent it.

    Raises:
        BadParameter: A file is a URL, is malformed, or is not stored under its id.
        TooLarge: A file is too large.
    """
    files: dict[FileKey, Attachment] = {}
    stored = [await _item(owned, item, f"{param}[{index}]", files, strict=strict) for index, item in enumerate(items)]
    return StoredItems(stored, files)


async def _item(
    owned: OwnerSessions, item: Value, param: str, files: dict[FileKey, Attachment], *, strict: bool
) -> Value:
    content = item.get("content")
    if not isinstance(content, list) or not any(_source(part) for part in content):
        return item
    parts = [
        await _part(owned, part, f"{param}.content[{index}]", files, strict=strict)
        for index, part in enumerate(content)
    ]
    return {**item, "content": parts}


async def _part(
    owned: OwnerSessions, part: Any, param: str, files: dict[FileKey, Attachment], *, strict: bool
) -> Any:  # Any: arbitrary content of a client
    source = _source(part)
    if source is None:
        return part
    try:
        attachment = await _stored(owned, source, f"{param}.{source.field}")
    except BadParameter:
        if strict:
            raise
        return part
    files[FileKey(source.type, attachment.blob, source.filename)] = attachment
    return _reference(source, attachment.blob)


def _source(part: Any) -> _Source | None:  # Any: arbitrary content of a client
    """The file in a part of an item or of a chat message; None if the part is not a file."""
    match part:
        case {"type": "image_url", "image_url": {"url": str(url), **more}}:
            return _Source("input_image", "image_url.url", **_data_or_url(url), detail=_text(more.get("detail")))
        case {"type": "input_image", "image_url": str(url)}:
            return _Source("input_image", "image_url", **_data_or_url(url), detail=_text(part.get("detail")))
        case {"type": "input_image", "file_id": str(file_id)}:
            return _Source("input_image", "file_id", file_id=file_id, detail=_text(part.get("detail")))
        case {"type": "file", "file": dict(file)}:
            return _file(file, "file.")
        case {"type": "input_file"}:
            return _file(part, "")
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(form)}}:
            name = f"audio.{form}"
            return _Source("input_file", "input_audio.data", data=data, filename=name, media_type=f"audio/{form}")
        case _:
            return None


def _file(file: dict[str, Any], within: str) -> _Source:  # Any: arbitrary content of a client
    name = _text(file.get("filename"))
    for field in ("file_data", "file_id", "file_url"):
        value = file.get(field)
        if isinstance(value, str):
            given = {"file_data": "data", "file_id": "file_id", "file_url": "url"}[field]
            return _Source("input_file", f"{within}{field}", filename=name, **{given: value})
    return _Source("input_file", f"{within}file_data", filename=name)


def _data_or_url(url: str) -> dict[str, str]:
    return {"data" if url[:5].lower() == "data:" else "url": url}


def _text(value: Any) -> str | None:  # Any: arbitrary content of a client
    return value if isinstance(value, str) else None


def _reference(source: _Source, blob: str) -> Value:
    """The part as it is stored and shown: a reference to the file."""
    if source.type == "input_image":
        return {"type": "input_image", "file_id": blob, "detail": source.detail or "auto"}
    return {"type": "input_file", "file_id": blob} | ({} if source.filename is None else {"filename": source.filename})


async def _stored(owned: OwnerSessions, source: _Source, param: str) -> Attachment:
    if source.data is not None:
        return await _from_data(owned, source, param)
    if source.file_id is not None:
        return await _from_id(owned, source, param)
    if source.url is not None:
        raise BadParameter(
            param, f"{param} is a URL, and this server does not fetch URLs", hint=_UPLOAD, code="unsupported_url"
        )
    raise BadParameter(param, f"{param} has no file", hint=_UPLOAD)


async def _from_data(owned: OwnerSessions, source: _Source, param: str) -> Attachment:
    data = source.data or ""
    kind, content = (source.media_type, _decoded(data, param)) if source.media_type else _parsed(data, param)
    if source.type == "input_image" and not (kind or "").startswith("image/"):
        raise BadParameter(
            param,
            f"{param} has the media type {kind or 'text/plain'!r}, not that of an image",
            hint="Send image/png, …",
        )
    kind = kind or signature_of(content) or await guess_media_type(source.filename or "")
    return await owned.upload(content, name=source.filename or _name(source.type, kind), media_type=kind)


def _parsed(text: str, param: str) -> tuple[str | None, bytes]:
    """The media type and the bytes of a data URL; text without `data:` is base64."""
    match = _DATA_URL.match(text)
    if match is not None and match["base64"]:
        return match["type"], _decoded(text[match.end() :], param)
    if match is not None:
        return match["type"], unquote_to_bytes(text[match.end() :])
    if text[:5].lower() == "data:":
        raise BadParameter(param, f"{param} is not a valid data URL", hint="Send data:image/png;base64,…")
    return None, _decoded(text, param)


def _decoded(text: str, param: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadParameter(
            param, f"{param} is not valid base64", hint="Send data:image/png;base64,…", code="invalid_base64"
        ) from error


async def _from_id(owned: OwnerSessions, source: _Source, param: str) -> Attachment:
    name = source.file_id or ""
    try:
        blob = await owned.run(commands.blob(name, owner=owned.owner))
        start = await owned.run(commands.read_blob(blob.hash, owner=owned.owner, length=16))
    except NotFound as error:
        raise BadParameter(param, f"there is no file {name[:80]!r}", hint=_UPLOAD, code="file_not_found") from error
    kind = signature_of(start)
    if source.type == "input_image" and not (kind or "").startswith("image/"):
        raise BadParameter(
            param, f"file {name[:80]!r} is not an image", hint="Send a PNG, JPEG, GIF or WebP image, or an input_file."
        )
    if source.filename is not None:
        kind = await guess_media_type(source.filename) if kind is None else kind
    return Attachment(blob.hash, source.filename or _name(source.type, kind or ""), kind or _OCTETS, blob.size)


def signature_of(content: bytes) -> str | None:
    """The media type that the first bytes of a file show; None if they show none."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _SIGNATURES.items() if content.startswith(start)), None)


def _name(type: str, kind: str) -> str:
    ending = re.sub(r"\W.*", "", kind.partition("/")[2])
    base = "image" if type == "input_image" else "file"
    return f"{base}.{ending}" if ending and kind != _OCTETS else base


def without_files(items: Iterable[Value]) -> StoredItems:
    """Items that have no files to store."""
    return StoredItems([*items], {})
