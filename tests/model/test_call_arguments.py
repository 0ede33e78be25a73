"""Arguments of tool calls are stored as the model or client wrote them, or as text."""

import json

import pytest

from backstay.model.codec import check_body
from backstay.model.content import ToolCall
from backstay.model.history.call_arguments import parse_arguments
from backstay.model.limits import Limits

EXACT = ['{"city": "Rome"}', "[1, 2.5, -0.1, null, true]", '{"a": {"b": 9223372036854775807}}', '"\\u00e9"', "1e5"]
LOSSY = [
    '{"id": 123456789012345678901234567890}',
    '{"id": -9223372036854775809}',
    '{"x": 0.12345678901234567890}',
    '{"x": 1e999}',
    '{"x": NaN}',
    '{"a": 1, "a": 2}',
    '{"half": "\\ud800"}',
    "{not json",
    "[" * 100_000,
    '{"x": ' + "9" * 5_000 + "}",
]


@pytest.mark.parametrize("text", EXACT)
def test_arguments_that_can_be_stored_exactly_are_values(text: str) -> None:
    assert parse_arguments(text) == json.loads(text)
    check_body(ToolCall("1", "tool", parse_arguments(text)), Limits())


@pytest.mark.parametrize("text", LOSSY, ids=range(len(LOSSY)))
def test_arguments_that_would_change_when_stored_stay_text(text: str) -> None:
    assert parse_arguments(text) == text
    check_body(ToolCall("1", "tool", parse_arguments(text)), Limits())


def test_no_arguments_are_an_empty_object() -> None:
    assert parse_arguments("") == parse_arguments("  ") == {}
