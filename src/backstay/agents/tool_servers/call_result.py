"""The result of a call of an MCP server, as the output of a tool: text, JSON and files."""

import base64
import binascii
import mimetypes

import msgspec
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from backstay.agents.tools import ToolFailed, ToolFile

_MOST_PARTS = 256
_REASON_LETTERS = 2_000


def output_of(result: CallToolResult, server: str, tool: str, limit: int) -> object:
    """Return the output, in which images and files are `ToolFile`s.

    Raises:
        ToolFailed: The server reports an error, or the result is too large or malformed.
    """
    if len(result.content) > _MOST_PARTS:
        raise ToolFailed(f"{server} returned {len(result.content):,} parts; at most {_MOST_PARTS} are accepted")
    if sum(_size(block) for block in result.content) > limit:
        raise ToolFailed(f"{server} returned more than {limit:,} bytes")
    if result.is_error:
        text = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
        raise ToolFailed(f"{server} reports: {text[:_REASON_LETTERS] or 'an error'}")
    parts = [_part(block, f"{tool}-{number}") for number, block in enumerate(result.content, 1)]
    files = [part for part in parts if isinstance(part, ToolFile)]
    if result.structured_content is not None and len(msgspec.json.encode(result.structured_content)) > limit:
        raise ToolFailed(f"{server} returned more than {limit:,} bytes")
    if result.structured_content is not None:
        return {"result": result.structured_content, "files": files} if files else result.structured_content
    return parts[0] if len(parts) == 1 else parts


def _part(block: ContentBlock, name: str) -> object:
    match block:
        case TextContent(text=text):
            return text
        case ImageContent(data=data, mime_type=kind) | AudioContent(data=data, mime_type=kind):
            return _file(data, kind, name)
        case EmbeddedResource(resource=TextResourceContents(text=text)):
            return text
        case EmbeddedResource(resource=BlobResourceContents(blob=data, mime_type=kind)):
            return _file(data, kind or "application/octet-stream", name)
        case ResourceLink():
            return {"resource": block.uri, "name": block.name}
        case _:
            return ""


def _file(data: str, kind: str, name: str) -> ToolFile:
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ToolFailed("the server returned a file that is not valid base64") from error
    return ToolFile(data=content, name=f"{name}{mimetypes.guess_extension(kind) or ''}", media_type=kind)


def _size(block: ContentBlock) -> int:
    match block:
        case TextContent(text=text) | EmbeddedResource(resource=TextResourceContents(text=text)):
            return len(text)
        case ImageContent(data=data) | AudioContent(data=data):
            return len(data)
        case EmbeddedResource(resource=BlobResourceContents(blob=data)):
            return len(data)
        case _:
            return 0
