"""Inspection: whether a store could have exported this document. Errors name the location of the fault.

A document comes from anywhere and may have been edited. One that passes keeps all invariants that verbs rely on:
numbers without gaps, windows that can be read, correct counts, and references that point to something in the document
and nowhere else.
"""

from backstay.model.documents.inspection.attachment_checks import check_attachments
from backstay.model.documents.inspection.event_checks import check_events
from backstay.model.documents.inspection.inspected import Document
from backstay.model.documents.inspection.result_checks import check_results
from backstay.model.documents.inspection.session_checks import check_facts
from backstay.model.documents.inspection.turn_checks import check_turns
from backstay.model.documents.inspection.window_checks import check_windows
from backstay.model.limits import Limits

__all__ = ["Document", "inspect"]


def inspect(document: Document, limits: Limits) -> None:
    """Check that a document is valid.

    The check needs memory for the windows of the session, and for nothing else that grows with it.

    Raises:
        InvalidPayload: It is invalid; the error names the location.
        TooLarge: It exceeds a limit.
    """
    check_facts(document, limits)
    ranges = check_windows(document, limits)
    check_results(document)
    check_turns(document, limits)
    check_events(document, ranges, limits)
    check_attachments(document, limits)
