"""Parsed docstrings, and their use in the OpenAPI document."""

import re

from backstay.server.http.docstrings import Section, parse
from backstay.server.http.openapi import PROBLEMS, DocumentedApi, document
from backstay.server.routes.turn_routes import OPERATIONS as TURNS

DOC = """Send a message.

    It is durable when this returns.

    Args:
        content: the text,
            or its parts.
        agent: who answers; None: the agent of the session.

    Returns:
        The turn.

    Raises:
        SessionBusy: a turn is running.
    """


def test_a_docstring_has_paragraphs_and_sections() -> None:
    parsed = parse(DOC)

    assert parsed.paragraphs == ("Send a message.", "It is durable when this returns.")
    assert parsed.sections == (
        Section(
            "Args", {"content": "the text, or its parts.", "agent": "who answers; None: the agent of the session."}, ""
        ),
        Section("Returns", {}, "The turn."),
        Section("Raises", {"SessionBusy": "a turn is running."}, ""),
    )


def test_a_docstring_may_be_one_line_or_missing() -> None:
    assert parse("One line.") == (("One line.",), ())
    assert parse(None) == ((), ())


def test_the_openapi_document_explains_fields_beside_the_fields() -> None:
    schemas = document((DocumentedApi(operations=TURNS, errors=PROBLEMS),))["components"]["schemas"]

    assert schemas["Usage"]["properties"]["cost"]["description"].startswith("The price")
    assert not [
        name
        for name, schema in schemas.items()
        if re.search(r"^\s*(Args|Attributes):", schema.get("description", ""), re.MULTILINE)
    ]
