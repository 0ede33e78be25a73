"""The document under inspection, as the checks read it. It need not be in memory."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from backstay.model.documents.document import ExportedEvent, ExportedTurn, ExportedWindow
from backstay.model.documents.records import AttachmentHead, Header
from backstay.model.ids import TurnId, WindowId
from backstay.model.message import Message
from backstay.model.turn import ToolCallRecord


class LocatedWindow(NamedTuple):
    """A window, and its location in the document."""

    location: str
    window: ExportedWindow


class DocumentKeys(Protocol):
    """A set of texts that may be too large for memory."""

    def add(self, *key: str) -> bool:
        """Add a key; returns whether it is new."""
        ...

    def discard(self, *key: str) -> None: ...

    def has(self, *key: str) -> bool: ...

    def __iter__(self) -> Iterator[str]: ...


class Document(Protocol):
    """An exported session. Ids are unique: the code that reads the document has rejected duplicates.

    Iterators follow the order of the document and yield the location, unless documented otherwise.
    """

    @property
    def header(self) -> Header: ...

    @property
    def windows(self) -> Sequence[LocatedWindow]: ...

    def messages(self, window: WindowId) -> Iterator[tuple[str, Message]]: ...

    def turns(self) -> Iterator[tuple[str, ExportedTurn]]: ...

    def turn(self, turn: TurnId) -> ExportedTurn | None: ...

    def has_turn(self, turn: TurnId) -> bool: ...

    def calls(self) -> Iterator[tuple[str, ToolCallRecord]]:
        """The calls of each root, in the order of their ordinals."""
        ...

    def has_call(self, key: str) -> bool: ...

    def events(self) -> Iterator[tuple[str, ExportedEvent]]: ...

    def event_before(self, number: int) -> ExportedEvent | None:
        """The event with this number, or the last one before it."""
        ...

    def attachments(self) -> Iterator[tuple[str, AttachmentHead]]: ...

    def bytes_of(self, attachment: str) -> Iterator[bytes]: ...

    def keys(self) -> DocumentKeys:
        """A new, empty set."""
        ...
