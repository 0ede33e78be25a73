"""Checks the attachments of a document."""

from collections.abc import Iterable

from backstay.errors import TooLarge
from backstay.model.content import Part, attachments_in
from backstay.model.documents.inspection.inspected import Document, DocumentKeys
from backstay.model.documents.inspection.requirements import require
from backstay.model.documents.records import digest_of
from backstay.model.limits import Limits


def check_attachments(document: Document, limits: Limits) -> None:
    """Raise unless the attachments are exactly those that messages and waiting turns refer to."""
    here, wanted = document.keys(), _wanted(document)
    for location, head in document.attachments():
        if head.size > limits.blob_bytes:
            raise TooLarge(f"{location} has {head.size:,} bytes; at most {limits.blob_bytes:,} are accepted")
        found = digest_of(document.bytes_of(head.hash))
        require(found == (head.size, head.hash), location, "does not match its hash")
        require(wanted.has(head.hash), "$.attachments", f"contain {head.hash}, which is not referenced")
        here.add(head.hash)
    missing = next((name for name in wanted if not here.has(name)), None)
    require(missing is None, "$.attachments", f"do not contain {missing}")


def _wanted(document: Document) -> DocumentKeys:
    wanted = document.keys()
    for _, window in document.windows:
        for _, message in document.messages(window.id):
            _add(wanted, message.parts)
    for _, turn in document.turns():
        _add(wanted, turn.waits_with())
    return wanted


def _add(wanted: DocumentKeys, parts: Iterable[Part]) -> None:
    for file in attachments_in(parts):
        wanted.add(file.blob)
