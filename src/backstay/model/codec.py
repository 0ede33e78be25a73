"""How values are written down: JSON, with a format number beside every record.

Reading is strict: a record that cannot be read is raised with its key, never skipped.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

from backstay.errors import CorruptRecord, InvalidPayload, TooLarge
from backstay.model.content import Custom, Json, Part, ToolCall, ToolResult, Usage
from backstay.model.event import EventBody
from backstay.model.limits import Limits

FORMAT = 1

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode
_decode_parts = msgspec.json.Decoder(tuple[Part, ...]).decode
_decode_event: Callable[[str], EventBody] = msgspec.json.Decoder(EventBody).decode
_decode_usage = msgspec.json.Decoder(Usage).decode
_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode


def encode_parts(parts: Sequence[Part], limits: Limits) -> str:
    """Parts as stored text, or a refusal that says what is wrong with them."""
    _check_depth(parts, limits.json_depth)
    text = _written(parts, "content")
    if len(text) > limits.message_bytes:
        raise TooLarge(
            f"the message has {len(text):,} bytes; at most {limits.message_bytes:,} are accepted",
            hint="Shorten it, or upload the bulk as an attachment.",
        )
    return text.decode()


def decode_parts(record: str, format: int, text: str) -> tuple[Part, ...]:
    """The parts of the record with this key."""
    if format != FORMAT:
        raise CorruptRecord(record, f"is written in format {format}; this version reads format {FORMAT}")
    try:
        return _decode_parts(text)
    except msgspec.DecodeError as error:
        raise CorruptRecord(record, str(error)) from error


def encode_event(body: EventBody) -> str:
    """An event's body as stored text."""
    return _written(body, "event").decode()


def decode_event(record: str, format: int, text: str) -> EventBody:
    """The event body of the record with this key."""
    if format != FORMAT:
        raise CorruptRecord(record, f"is written in format {format}; this version reads format {FORMAT}")
    try:
        return _decode_event(text)
    except msgspec.DecodeError as error:
        raise CorruptRecord(record, str(error)) from error


def encode_usage(usage: Usage) -> str | None:
    """Usage as stored text; none at all takes no room."""
    return None if usage == Usage() else _written(usage, "usage").decode()


def decode_usage(record: str, text: str | None) -> Usage:
    """The usage of the record with this key."""
    try:
        return Usage() if text is None else _decode_usage(text)
    except msgspec.DecodeError as error:
        raise CorruptRecord(record, str(error)) from error


def check_body(body: object, limits: Limits) -> None:
    """Raise unless this streamed body can be stored."""
    if isinstance(body, ToolCall | ToolResult | Custom):
        _check_depth((body,), limits.json_depth)


def content_hash(*values: Json) -> bytes:
    """Sixteen bytes that are the same for the same values, whatever the order of keys."""
    try:
        return hashlib.blake2b(_encode_sorted(values), digest_size=16).digest()
    except (msgspec.ValidationError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidPayload(f"content cannot be written as JSON: {error}") from error


def arguments_hash(arguments: Json) -> str:
    """What an approval is bound to: the hash of a tool call's arguments."""
    return content_hash(arguments).hex()


def check_text(what: str, text: object, limit: int) -> str:
    """The same text, or a refusal: it must be text, storable on every engine, and short enough."""
    if not isinstance(text, str):
        raise InvalidPayload(f"{what} must be text, not {type(text).__name__}")
    if "\0" in text:
        raise InvalidPayload(f"{what} contains a NUL character", hint="Remove it.")
    size = len(_written(text, what)) - 2
    if size > limit:
        raise TooLarge(f"{what} has {size:,} bytes; at most {limit:,} are accepted", hint="Shorten it.")
    return text


def _written(value: object, what: str) -> bytes:
    try:
        return _encode(value)
    except UnicodeEncodeError as error:
        raise InvalidPayload(
            f"{what} contains a lone surrogate at character {error.start}, which is not valid text",
            hint="Decode input with errors='replace', or clean it before sending.",
        ) from error
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidPayload(f"{what} cannot be written as JSON: {error}", hint="Use plain JSON values.") from error


def _check_depth(parts: Iterable[Part | Usage], limit: int) -> None:
    for part in parts:
        if isinstance(part, ToolCall):
            _check_json(part.arguments, limit)
        elif isinstance(part, ToolResult):
            _check_json(part.output, limit)
        elif isinstance(part, Custom):
            _check_json(part.data, limit)


def _check_json(value: Json, limit: int) -> None:
    """Level by level, so that a hostile nesting costs no stack."""
    level: list[Json] = [value]
    for _ in range(limit):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise InvalidPayload(f"JSON is nested deeper than {limit} levels", hint="Flatten it, or store it as text.")


def _inside(value: Json) -> Iterable[Json]:
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise InvalidPayload("JSON objects must have text keys")
        return value.values()
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidPayload(f"{value} is not a JSON number", hint="Use null or text.")
    return ()


def decode_names(record: str, text: str) -> tuple[str, ...]:
    """A stored list of names."""
    try:
        return _decode_names(text)
    except msgspec.DecodeError as error:
        raise CorruptRecord(record, str(error)) from error
