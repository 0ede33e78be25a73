"""Inspection: whether a store could have exported this document. Whoever edited it learns where it is unsound.

A document comes from anywhere. What passes here keeps every promise that verbs rely on: numbers without gaps, windows
that can be read, counts that are right, and references that lead to something in the document and nowhere else.
"""

from backstay.model.export import Export
from backstay.model.inspection.attachments import check_attachments
from backstay.model.inspection.facts import check_facts
from backstay.model.inspection.story import check_story
from backstay.model.inspection.turns import check_turns
from backstay.model.inspection.windows import check_windows
from backstay.model.limits import Limits

__all__ = ["inspect"]


def inspect(export: Export, limits: Limits) -> None:
    """Raise `InvalidPayload` or `TooLarge`, naming the place, unless this document is sound."""
    check_facts(export, limits)
    check_windows(export, limits)
    check_turns(export, limits)
    check_story(export, limits)
    check_attachments(export, limits)
