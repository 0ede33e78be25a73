"""Arguments of tool calls, which models and clients write as JSON text."""

import json
from decimal import Decimal, InvalidOperation
from typing import NoReturn

from backstay.model.content import LEAST_INTEGER, MOST_INTEGER, Json


class _Lossy(ValueError):
    """The text has a value that would not be stored exactly."""


def parse_arguments(text: str) -> Json:
    """The JSON value of this text; the text itself if it is not JSON, or if a stored value would differ from it.

    A number that needs more than 64 bits, or more digits than a float has, is passed on unchanged in this way.
    """
    try:
        value: Json = json.loads(
            text.strip() or "{}",
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_constant,
            object_pairs_hook=_object,
        )
        if "\\" in text:
            # An escape may stand for half a character, which cannot be stored.
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return text
    return value


def _integer(token: str) -> int:
    value = int(token)
    if not LEAST_INTEGER <= value <= MOST_INTEGER:
        raise _Lossy(token)
    return value


def _float(token: str) -> float:
    value = float(token)
    try:
        exact = Decimal(repr(value)) == Decimal(token)
    except InvalidOperation:
        exact = False
    if not exact:
        raise _Lossy(token)
    return value


def _constant(token: str) -> NoReturn:
    raise _Lossy(token)


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise _Lossy("a key occurs twice")
    return values
