"""Checks the tool results of a document: each answers an earlier call, and no call is answered twice."""

from collections.abc import Iterable

from backstay.model.content import Part, ToolCall, ToolResult
from backstay.model.documents.document import ExportedWindow
from backstay.model.documents.inspection.inspected import Document, DocumentKeys
from backstay.model.documents.inspection.requirements import require
from backstay.model.event import ToolCalled, ToolReturned


def check_results(document: Document) -> None:
    """Raise if a message or event has the result of a call that nothing before it made, or a second result."""
    _check_events(document)
    # The windows are in the order of their opening: a call may have been made in an earlier one.
    known = document.keys()
    for _, window in document.windows:
        _check_window(document, window, known)
    for location, turn in document.turns():
        if turn.record:
            # Messages that wait to be recorded have their own calls, as when they were accepted.
            calls = _Calls(document)
            for number, waiting in enumerate(turn.record):
                calls.read(waiting.parts, f"{location}.record[{number}]", known=None)


def _check_events(document: Document) -> None:
    """Check that the call of each result event comes before it in the same turn."""
    called = document.keys()
    for location, event in document.events():
        if isinstance(event.body, ToolCalled):
            called.add(event.turn or "", event.body.call.id)
        elif isinstance(event.body, ToolReturned):
            answered = event.body.result.id
            made = called.has(event.turn or "", answered)
            require(made, f"{location}.body.result", f"answers call {answered!r}, which its turn did not make")


def _check_window(document: Document, window: ExportedWindow, known: DocumentKeys) -> None:
    calls, following = _Calls(document), window.start
    for location, message in document.messages(window.id):
        # Only those messages of an ancestor are here that the session reads: the call may be omitted.
        gap = message.position != following and window.session != document.header.session.id
        calls.incomplete = calls.incomplete or gap
        calls.read(message.parts, location, known=known)
        following = message.position + 1
    for made in calls.made:
        known.add(made)


class _Calls:
    """The calls in consecutive messages."""

    def __init__(self, document: Document) -> None:
        self.made, self._open, self._answered = document.keys(), document.keys(), document.keys()
        self.incomplete = False

    def read(self, parts: Iterable[Part], location: str, *, known: DocumentKeys | None) -> None:
        for part in parts:
            if isinstance(part, ToolCall):
                self.made.add(part.id)
                self._open.add(part.id)
                self._answered.discard(part.id)
            elif isinstance(part, ToolResult):
                require(not self._answered.has(part.id), location, f"contains a second result of call {part.id!r}")
                made = self._open.has(part.id) or self.incomplete or (known is not None and known.has(part.id))
                require(made, location, f"contains a result of call {part.id!r}, which no earlier message made")
                self._open.discard(part.id)
                self._answered.add(part.id)
