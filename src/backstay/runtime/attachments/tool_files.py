"""Files that a tool returns: stored as attachments of its result."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from backstay.agents.tools import ToolFailed, ToolFile
from backstay.errors import Conflict, Rejected
from backstay.model.content import Attachment, Json
from backstay.runtime.async_store import AsyncStore
from backstay.runtime.attachments.file_upload import upload_file


class StoredOutput(NamedTuple):
    """The output of a tool as JSON, with a description in place of each file, and the files."""

    output: Json
    files: tuple[Attachment, ...]


class ToolFiles:
    """Stores the files in the outputs of tools, for one owner."""

    def __init__(self, store: AsyncStore, owner: str) -> None:
        self._store, self._owner = store, owner

    async def store(self, output: object) -> StoredOutput:
        """Store the files in an output; one without files is returned as it is.

        Raises:
            ToolFailed: A file cannot be read, or is larger than the store accepts.
        """
        found: list[ToolFile] = []
        _collect(output, found, self._store.limits.json_depth)
        if not found:
            return StoredOutput(output, ())
        stored = [await self._upload(file) for file in found]
        return StoredOutput(_described(output, iter(stored)), tuple(stored))

    async def _upload(self, file: ToolFile) -> Attachment:
        try:
            return await upload_file(self._store, self._owner, file.data, file.name, file.media_type)
        except (OSError, Conflict, Rejected) as error:
            what = file.name or (file.data if isinstance(file.data, str) else "file")
            reason = error.strerror if isinstance(error, OSError) else error.args[0]
            raise ToolFailed(f"the file {what!r} could not be stored: {reason}") from error


def _collect(value: object, found: list[ToolFile], depth: int) -> None:
    """Find the files, in the order in which `_described` meets them. Deeper JSON is rejected when it is stored."""
    match value:
        case ToolFile():
            found.append(value)
        case list() | tuple() if depth:
            for inner in value:
                _collect(inner, found, depth - 1)
        case dict() if depth:
            for inner in value.values():
                _collect(inner, found, depth - 1)
        case _:
            pass


def _described(value: object, stored: Iterator[Attachment]) -> Json:
    match value:
        case ToolFile():
            return _description(next(stored))
        case list() | tuple():
            return [_described(inner, stored) for inner in value]
        case dict():
            return {key: _described(inner, stored) for key, inner in value.items()}
        case _:
            return value


def _description(file: Attachment) -> dict[str, Json]:
    """The fields of the attachment: `Attachment(**description)` is the file again."""
    fields: dict[str, Json] = msgspec.structs.asdict(file)
    return fields
