"""Encoding of stored values: JSON, with a format number beside every record.

Decoding is strict: a record that cannot be decoded raises an error with its key and is never skipped.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from backstay.errors import CorruptRecord, InvalidPayload, TooLarge
from backstay.model.content import (
    LEAST_INTEGER,
    MOST_INTEGER,
    Attachment,
    Body,
    Custom,
    Json,
    Part,
    Text,
    Thought,
    ToolCall,
    ToolResult,
    Usage,
)
from backstay.model.event import EventBody
from backstay.model.limits import Limits

# The formats of a record: JSON; or, for the most common message, the plain text of its only part.
FORMAT = 1
WORDS = 2

# Fields with checks of their own.
_JSON_FIELDS = frozenset({"arguments", "output", "data", "files"})
_PLAIN = frozenset({str, bool, int, float, type(None)})
# The longest JSON of one ASCII character, and of the rest of a text body.
_ESCAPED, _AROUND = 6, 64

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode
_decode_parts = msgspec.json.Decoder(tuple[Part, ...]).decode
_decode_event: Callable[[str], EventBody] = msgspec.json.Decoder(EventBody).decode
_decode_body = msgspec.json.Decoder(Body).decode
_decode_usage = msgspec.json.Decoder(Usage).decode
_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_metadata = msgspec.json.Decoder(dict[str, str]).decode


class Encoded(NamedTuple):
    """Parts in their stored form."""

    format: int
    text: str

    @property
    def size(self) -> int:
        """The number of bytes that it takes."""
        return len(self.text.encode())


def encode_parts(parts: Sequence[Part], limits: Limits) -> Encoded:
    """Parts from outside in their stored form.

    Raises:
        InvalidPayload: The content is invalid.
        TooLarge: The message is too long.
    """
    encoded = write_parts(parts)
    # A character takes at most four bytes: most messages need not be measured.
    if len(encoded.text) * 4 > limits.message_bytes and len(encoded.text.encode()) > limits.message_bytes:
        raise _too_large("the message", len(encoded.text.encode()), limits.message_bytes)
    if encoded.format == FORMAT:
        _check_parts(parts, encoded.text, limits)
    return encoded


def write_parts(parts: Sequence[Part]) -> Encoded:
    """Parts in their stored form, without a limit: the output of an agent is kept at any length."""
    only = parts[0] if len(parts) == 1 else None
    # A NUL is valid text, but no database accepts it as such; JSON escapes it.
    if type(only) is Text and type(only.text) is str and "\0" not in only.text:
        if not only.text.isascii():
            _written(only.text, "content")
        return Encoded(WORDS, only.text)
    return Encoded(FORMAT, _written(parts, "content").decode())


def decode_parts(record: str, format: int, text: str) -> tuple[Part, ...]:
    """The parts of the record with this key, or `CorruptRecord`."""
    if format == WORDS:
        return (Text(text),)
    if format != FORMAT:
        raise CorruptRecord(record, f"is written in format {format}; this version reads {FORMAT} and {WORDS}")
    try:
        return _decode_parts(text)
    except msgspec.DecodeError as error:
        raise CorruptRecord(record, str(error)) from error


def encode_event(body: EventBody) -> str:
    """The stored text of an event's body."""
    return _written(body, "event").decode()


def decode_event(record: str, format: int, text: str) -> EventBody:
    """The event body of the record with this key, or `CorruptRecord`."""
    if format != FORMAT:
        raise CorruptRecord(record, f"is written in format {format}; this version reads format {FORMAT}")
    try:
        return _decode_event(text)
    except msgspec.DecodeError as error:
        raise CorruptRecord(record, str(error)) from error


def encode_usage(usage: Usage) -> str | None:
    """The stored text of a usage; None for an empty one."""
    return None if usage == Usage() else _written(usage, "usage").decode()


def decode_usage(record: str, text: str | None) -> Usage:
    """The usage of the record with this key, or `CorruptRecord`."""
    try:
        return Usage() if text is None else _decode_usage(text)
    except msgspec.DecodeError as error:
        raise CorruptRecord(record, str(error)) from error


def check_body(body: Body, limits: Limits) -> Body:
    """A copy of the body as it will be decoded again; changes to the original do not affect it.

    Raises:
        InvalidPayload: The body cannot be stored.
        TooLarge: It exceeds a limit.
    """
    if _is_a_few_plain_words(body, limits):
        return body
    text = _written(body, "a body")
    if len(text) > limits.message_bytes:
        raise _too_large("a streamed body", len(text), limits.message_bytes)
    _check_fields(body, limits)
    try:
        checked: Body = _decode_body(text)
    except msgspec.DecodeError as error:
        raise InvalidPayload(f"invalid {type(body).__name__}: {error}") from error
    if isinstance(checked, Usage):
        _check_usage(checked)
    return checked


def content_hash(*values: Json) -> bytes:
    """A hash of 16 bytes, independent of the order of keys."""
    try:
        return hashlib.blake2b(_encode_sorted(values), digest_size=16).digest()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidPayload(f"content cannot be written as JSON: {error}", hint="Use plain JSON values.") from error


def arguments_hash(arguments: Json) -> str:
    """The hash of a tool call's arguments. An approval is bound to it.

    Neither the order of keys nor the spelling of a number counts: 5 and 5.0 are the same JSON number.
    """
    return content_hash(_with_plain_numbers(arguments)).hex()


def _with_plain_numbers(value: Json) -> Json:
    match value:
        case float() if value.is_integer() and LEAST_INTEGER <= value <= MOST_INTEGER:
            return int(value)
        case dict():
            return {key: _with_plain_numbers(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_with_plain_numbers(inner) for inner in value]
        case _:
            return value


def check_name(what: str, text: object, limit: int) -> str:
    """The same text, or an error: like `check_text`, and not empty."""
    if not check_text(what, text, limit).strip():
        raise InvalidPayload(f"{what} is empty", hint="Pass at least one character.")
    return str(text)


def check_text(what: str, text: object, limit: int) -> str:
    """The same text, if it is a string, can be stored on every engine and is short enough.

    Raises:
        InvalidPayload: It is not text, or contains NUL or a lone surrogate.
        TooLarge: It is too long.
    """
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


def _too_large(what: str, size: int, limit: int) -> TooLarge:
    return TooLarge(
        f"{what} has {size:,} bytes; at most {limit:,} are accepted",
        hint="Shorten it, or upload the bulk as an attachment.",
    )


def _check_parts(parts: Sequence[Part], text: str, limits: Limits) -> None:
    """Reject content that decoding would reject, or would return as something else."""
    for part in parts:
        _check_fields(part, limits)
    try:
        _decode_parts(text)
    except msgspec.DecodeError as error:
        raise InvalidPayload(f"invalid content: {error}") from error


def _is_a_few_plain_words(body: Body, limits: Limits) -> bool:
    """Whether the body needs no further check. This is the fast path for almost all output."""
    if type(body) is not Text and type(body) is not Thought:
        return False
    words = body.text
    return type(words) is str and words.isascii() and len(words) * _ESCAPED + _AROUND <= limits.message_bytes


def _check_usage(usage: Usage) -> None:
    """Reject usage that cannot be summed up: negative numbers, NaN, or more than 64 bits."""
    tokens = (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens)
    for count in (*tokens, usage.cost):
        if not 0 <= count <= (MOST_INTEGER if isinstance(count, int) else math.inf):
            raise InvalidPayload(
                f"usage must be between 0 and 2**63 - 1, got {count}",
                hint="Report the usage as a 64-bit number, zero or more.",
            )


def _check_fields(part: Part | Body, limits: Limits) -> None:
    """Reject fields that are not plain values: JSON would return them as something else, for example bytes as text."""
    if isinstance(part, ToolCall | ToolResult | Custom):
        _check_json(_json_of(part), limits.json_depth)
    if isinstance(part, ToolResult):
        _check_files(part.files, limits)
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if name not in _JSON_FIELDS and type(value) not in _PLAIN:
            raise InvalidPayload(f"{type(part).__name__}.{name} is {type(value).__name__}", hint="Use plain values.")


def _check_files(files: object, limits: Limits) -> None:
    if not isinstance(files, tuple) or not all(isinstance(file, Attachment) for file in files):
        raise InvalidPayload("ToolResult.files is not a tuple of attachments", hint="Pass (attachment, …).")
    for file in files:
        _check_fields(file, limits)


def _json_of(part: ToolCall | ToolResult | Custom) -> Json:
    match part:
        case ToolCall(arguments=arguments):
            return arguments
        case ToolResult(output=output):
            return output
        case Custom(data=data):
            return data


def _check_json(value: Json, limit: int) -> None:
    """Check nested JSON level by level, without recursion: hostile nesting cannot exhaust the stack."""
    level: list[Json] = [value]
    for _ in range(limit):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise InvalidPayload(f"JSON is nested deeper than {limit} levels", hint="Flatten it, or store it as text.")


def _inside(value: Json) -> Iterable[Json]:
    """The values inside a JSON value. Rejects a value that would be decoded as something else."""
    match value:
        case dict():
            if not all(isinstance(key, str) for key in value):
                raise InvalidPayload("JSON objects must have text keys", hint="Convert the keys to text.")
            return value.values()
        case list() | tuple():
            return value
        case None | bool() | str():
            return ()
        case int():
            if not LEAST_INTEGER <= value <= MOST_INTEGER:
                raise InvalidPayload(f"{value} does not fit into 64 bits", hint="Send it as text.")
            return ()
        case float():
            if not math.isfinite(value):
                raise InvalidPayload(f"{value} is not a JSON number", hint="Use null or text.")
            return ()
        case _:
            raise InvalidPayload(f"{type(value).__name__} is not a JSON value", hint="Use plain JSON values.")


def encode_names(names: Sequence[str]) -> str:
    """The stored text of a list of names."""
    return _encode(names).decode()


def decode_names(record: str, text: str) -> tuple[str, ...]:
    """A stored list of names, or `CorruptRecord`."""
    try:
        return _decode_names(text)
    except msgspec.DecodeError as error:
        raise CorruptRecord(record, str(error)) from error


def encode_metadata(metadata: Mapping[str, str]) -> str:
    """The stored text of a session's metadata; equal metadata has equal text."""
    return _encode_sorted(metadata).decode()


def decode_metadata(record: str, text: str) -> dict[str, str]:
    """The metadata of the record with this key, or `CorruptRecord`."""
    try:
        return _decode_metadata(text)
    except msgspec.DecodeError as error:
        raise CorruptRecord(record, str(error)) from error


def check_metadata(metadata: object, limits: Limits) -> dict[str, str]:
    """A copy of the metadata, if it has few enough, short enough entries.

    Raises:
        InvalidPayload: It is not a mapping from text to text.
        TooLarge: It exceeds a limit.
    """
    if not isinstance(metadata, Mapping):
        raise InvalidPayload(
            f"metadata must be a mapping, not {type(metadata).__name__}", hint="Pass a mapping from text to text."
        )
    if len(metadata) > limits.metadata:
        raise TooLarge(
            f"metadata has {len(metadata)} entries; at most {limits.metadata} are accepted",
            hint="Combine some of them.",
        )
    for name, value in metadata.items():
        check_name("a metadata key", name, limits.metadata_name_bytes)
        check_text(f"metadata {name!r}", value, limits.metadata_bytes)
    return dict(metadata)
