"""The codec: stored values decode to the encoded value, and invalid values are rejected with their cause."""

import math
from typing import Any, cast

import pytest

from backstay.errors import CorruptRecord, InvalidPayload, TooLarge
from backstay.model.codec import (
    FORMAT,
    WORDS,
    arguments_hash,
    check_body,
    check_metadata,
    check_name,
    check_text,
    content_hash,
    decode_event,
    decode_metadata,
    decode_names,
    decode_parts,
    decode_usage,
    encode_event,
    encode_metadata,
    encode_names,
    encode_parts,
    encode_usage,
    write_parts,
)
from backstay.model.content import Attachment, Body, Custom, Part, Text, Thought, ToolCall, ToolResult, Usage
from backstay.model.event import EventBody, TailLost, TextDelta, ToolCalled, TurnEnded
from backstay.model.limits import Limits
from backstay.model.turn import Failed

LIMITS = Limits(message_bytes=200, json_depth=3, metadata=2, metadata_name_bytes=4, metadata_bytes=8)
RECORD = "msg_1"

# --- parts ----------------------------------------------------------------------------------------------------------

PARTS: dict[str, tuple[tuple[Part, ...], int]] = {
    "plain text": ((Text("hello"),), WORDS),
    "text in any script": ((Text("héllo 世界 🙂"),), WORDS),
    "empty text": ((Text(""),), WORDS),
    "text with a NUL": ((Text("a\0b"),), FORMAT),
    "text that looks like JSON": ((Text('[{"type":"text","text":"x"}]'),), WORDS),
    "a thought": ((Thought("hm"),), FORMAT),
    "two parts": ((Text("a"), Text("b")), FORMAT),
    "a call": ((ToolCall("c1", "look", {"at": [1, 2.5, None, True]}),), FORMAT),
    "a result": ((ToolResult("c1", {"found": "no"}, error=True),), FORMAT),
    "an attachment": ((Attachment("0" * 64, "a.png", "image/png", 7),), FORMAT),
    "custom data": ((Custom("chart", {"x": 1}),), FORMAT),
    "no parts": ((), FORMAT),
}


@pytest.mark.parametrize(("parts", "format"), PARTS.values(), ids=PARTS)
def test_parts_decode_to_the_encoded_value(parts: tuple[Part, ...], format: int) -> None:
    encoded = write_parts(parts)

    assert encoded.format == format
    assert decode_parts(RECORD, *encoded) == parts


@pytest.mark.parametrize(("size", "fits"), [(200, True), (201, False)])
def test_a_message_may_have_exactly_its_limit_in_bytes(size: int, fits: bool) -> None:
    for letter in ("a", "é"):
        text = letter * (size // len(letter.encode())) + "a" * (size % len(letter.encode()))
        if fits:
            assert encode_parts((Text(text),), LIMITS).text == text
        else:
            with pytest.raises(TooLarge, match="201 bytes; at most 200"):
                encode_parts((Text(text),), LIMITS)


UNSTORABLE: dict[str, tuple[Any, str]] = {  # Any: these values have the wrong types
    "a lone surrogate": (Text("a\ud800"), "lone surrogate at character 1"),
    "bytes as text": (Text(cast(str, b"a")), "Text.text is bytes"),
    "text as size": (Attachment("0" * 64, "a", "b", cast(int, "7")), "Expected `int`"),
    "NaN": (Custom("x", math.nan), "nan is not a JSON number"),
    "an integer beyond 64 bits": (Custom("x", 1 << 63), "does not fit into 64 bits"),
    "a key that is not text": (Custom("x", {1: "a"}), "must have text keys"),
    "a set": (Custom("x", {"a", "b"}), "set is not a JSON value"),
    "too deep nesting": (Custom("x", [[[[1]]]]), "nested deeper than 3 levels"),
}


@pytest.mark.parametrize(("part", "problem"), UNSTORABLE.values(), ids=UNSTORABLE)
def test_parts_that_cannot_be_stored_are_rejected_with_the_cause(part: Any, problem: str) -> None:  # Any: as above
    with pytest.raises(InvalidPayload, match=problem):
        encode_parts((part, Text("")), LIMITS)


def test_nesting_up_to_the_limit_is_accepted() -> None:
    parts = (Custom("x", [[1]]),)

    assert decode_parts(RECORD, *encode_parts(parts, LIMITS)) == parts


# --- records --------------------------------------------------------------------------------------------------------

EVENTS: dict[str, EventBody] = {
    "text": TextDelta("a\0b"),
    "a call": ToolCalled(ToolCall("c1", "look", {"at": "x"}, approval=True), "trn_1.0"),
    "an end": TurnEnded(Failed("boom"), messages=2, may_have_run=("c1",)),
    "a lost tail": TailLost(rewritten=True),
}


@pytest.mark.parametrize("body", EVENTS.values(), ids=EVENTS)
def test_an_event_decodes_to_the_encoded_value(body: EventBody) -> None:
    assert decode_event(RECORD, FORMAT, encode_event(body)) == body


@pytest.mark.parametrize(
    "decode",
    [
        lambda: decode_parts(RECORD, FORMAT, '[{"type":"unheard of"}]'),
        lambda: decode_parts(RECORD, FORMAT, "not JSON"),
        lambda: decode_parts(RECORD, 3, "[]"),
        lambda: decode_event(RECORD, FORMAT, '{"kind":"unheard_of"}'),
        lambda: decode_event(RECORD, WORDS, "{}"),
        lambda: decode_usage(RECORD, '{"input_tokens":"many"}'),
        lambda: decode_names(RECORD, '{"a":1}'),
        lambda: decode_metadata(RECORD, '{"a":1}'),
    ],
)
def test_a_record_that_cannot_be_decoded_is_named(decode: Any) -> None:  # Any: each returns another type
    with pytest.raises(CorruptRecord, match=RECORD):
        decode()


@pytest.mark.parametrize("usage", [Usage(), Usage(input_tokens=3, cost=0.5), Usage(model="m")])
def test_usage_decodes_to_the_encoded_value(usage: Usage) -> None:
    assert decode_usage(RECORD, encode_usage(usage)) == usage


def test_empty_usage_takes_no_space() -> None:
    assert encode_usage(Usage()) is None


def test_names_and_metadata_decode_to_the_encoded_value() -> None:
    assert decode_names(RECORD, encode_names(("b", "a"))) == ("b", "a")
    assert decode_metadata(RECORD, encode_metadata({"b": "1", "a": "2"})) == {"a": "2", "b": "1"}


def test_equal_metadata_has_equal_text() -> None:
    assert encode_metadata({"b": "1", "a": "2"}) == encode_metadata({"a": "2", "b": "1"})


# --- bodies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [Text("x"), Text("é" * 80), Thought("x"), ToolResult("c", [1]), Usage(cost=1.5)])
def test_a_valid_body_stays_equal(body: Body) -> None:
    assert check_body(body, LIMITS) == body


def test_a_checked_body_does_not_follow_changes_of_the_original() -> None:
    arguments = {"path": "a"}
    checked = check_body(ToolCall("c1", "read", arguments), LIMITS)
    arguments["path"] = "b"

    assert isinstance(checked, ToolCall)
    assert checked.arguments == {"path": "a"}


def test_a_body_over_the_limit_is_rejected() -> None:
    with pytest.raises(TooLarge, match="at most 200"):
        check_body(Text("a" * 201), LIMITS)


@pytest.mark.parametrize(
    "usage", [Usage(input_tokens=-1), Usage(cost=-0.1), Usage(cost=math.nan), Usage(output_tokens=1 << 63)]
)
def test_usage_that_cannot_be_summed_up_is_rejected(usage: Usage) -> None:
    with pytest.raises(InvalidPayload):
        check_body(usage, LIMITS)


# --- hashes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"amount": 5}, {"amount": 5.0}, True),
        ([{"a": [5.0]}], [{"a": (5,)}], True),
        ({"amount": 5}, {"amount": 5.5}, False),
        ({"amount": 5}, {"amount": "5"}, False),
        ({"amount": 1}, {"amount": True}, False),
        ([1, 2], [2, 1], False),
        (None, {}, False),
    ],
)
def test_arguments_have_one_hash_in_every_spelling(one: Any, other: Any, same: bool) -> None:  # Any: JSON
    assert (arguments_hash(one) == arguments_hash(other)) is same


def test_a_content_hash_separates_its_values() -> None:
    assert content_hash("ab", "c") != content_hash("a", "bc")
    assert len(content_hash("ab")) == 16


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("tool", None),
        ("tööl", None),
        ("", InvalidPayload),
        (" \t", InvalidPayload),
        (7, InvalidPayload),
        ("a\0", InvalidPayload),
        ("a\udfff", InvalidPayload),
        ("ééé", TooLarge),
    ],
)
def test_a_name_is_short_text_that_every_engine_stores(text: object, error: type[Exception] | None) -> None:
    if error is None:
        assert check_name("a name", text, 6) == text
    else:
        with pytest.raises(error, match="a name"):
            check_name("a name", text, 5)


def test_text_may_be_empty_but_a_name_may_not() -> None:
    assert check_text("a draft", "", 5) == ""


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({"a": "1", "b": ""}, None),
        ({"a": "1", "b": "2", "c": "3"}, TooLarge),
        ({"abcde": "1"}, TooLarge),
        ({"a": "123456789"}, TooLarge),
        ({"": "1"}, InvalidPayload),
        ({"a": 1}, InvalidPayload),
        ([("a", "1")], InvalidPayload),
    ],
)
def test_metadata_is_a_few_short_texts_by_name(metadata: object, error: type[Exception] | None) -> None:
    if error is None:
        assert check_metadata(metadata, LIMITS) == metadata
    else:
        with pytest.raises(error):
            check_metadata(metadata, LIMITS)
