"""The current window of an exported file, read message by message."""

from array import array
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import msgspec

from backstay.errors import InvalidPayload
from backstay.model.documents.document import ExportedWindow
from backstay.model.documents.records import ExportedMessage, Header, decoded_line, header_in
from backstay.model.ids import WindowId
from backstay.model.message import Message

_END = 1 << 52


class _MessageLines(NamedTuple):
    """The messages of a window in the file: their positions in the window, and where their lines begin."""

    positions: "array[int]"
    offsets: "array[int]"


class ConversationFile:
    """An export that this process wrote. Memory holds its windows and two numbers per message, never their text."""

    def __init__(self, lines: BinaryIO) -> None:
        self._file = lines
        self._windows: dict[WindowId, ExportedWindow] = {}
        self._lines: dict[WindowId, _MessageLines] = {}
        lines.seek(0)
        self.header: Header = header_in(lines, _END)
        lines.seek(0)
        lines.readline()
        self._find_messages()

    def messages(self) -> Iterator[Message]:
        """The messages of the current window, at the positions where an agent reads them."""
        chain = [(self.header.session.window, _END)]
        while (base := self._windows[chain[-1][0]].base) is not None:
            chain.append((base.window, min(base.until, chain[-1][1])))
        for window, until in reversed(chain):
            yield from self._own(window, until)

    def _find_messages(self) -> None:
        """Note the windows, and where the messages are. Turns, events and attachments, which follow, are not read."""
        while text := self._file.readline():
            match decoded_line(text):
                case ExportedWindow() as window:
                    self._windows[window.id] = window
                    self._lines[window.id] = _MessageLines(array("q"), array("q"))
                case ExportedMessage(window=source, message=message):
                    self._lines[source].positions.append(message.position)
                    self._lines[source].offsets.append(self._file.tell() - len(text))
                case _:
                    return

    def _own(self, window: WindowId, until: int) -> Iterator[Message]:
        """The messages that a window's own segments contribute to its first `until` messages."""
        for part in self._windows[window].segments:
            found = self._lines[part.source]
            for position, offset in zip(found.positions, found.offsets, strict=True):
                here = part.start + position - part.low
                if part.low <= position < (_END if part.high is None else part.high) and here < until:
                    yield msgspec.structs.replace(self._read(offset), position=here)

    def _read(self, offset: int) -> Message:
        self._file.seek(offset)
        record = decoded_line(self._file.readline())
        if not isinstance(record, ExportedMessage):
            raise InvalidPayload("the exported file was changed while it was read", hint="Export the session again.")
        return record.message
