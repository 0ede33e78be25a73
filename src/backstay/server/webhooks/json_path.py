"""Paths of values in JSON, such as `message.text` or `items[0].id`; a leading `$.` is allowed."""

import re
from typing import Any

import msgspec

from backstay.errors import ConfigError

_STEP = re.compile(r"(?:^|\.)([^.\[\]\s]+)|\[(\d{1,6})\]")


class JsonPath(msgspec.Struct, frozen=True):
    """A parsed path: names of members, and indexes of items."""

    steps: tuple[str | int, ...]

    @staticmethod
    def parse(text: str) -> "JsonPath":
        """Parse a path.

        Raises:
            ConfigError: It is not a path.
        """
        inner = text.removeprefix("$").removeprefix(".")
        found = list(_STEP.finditer(inner))
        if not found or "".join(match[0] for match in found) != inner:
            raise ConfigError(f"{text!r} is not a path", hint="Write one such as message.text or items[0].id.")
        return JsonPath(tuple(int(match[2]) if match[1] is None else match[1] for match in found))

    def text_in(self, document: Any) -> str | None:  # Any: any JSON
        """The value as text; None if it is missing, or is neither text nor a number nor a boolean."""
        value = document
        for step in self.steps:
            value = _member(value, step)
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value) if isinstance(value, str | int | float) else None


def _member(value: Any, step: str | int) -> Any:  # Any: any JSON
    if isinstance(step, int):
        return value[step] if isinstance(value, list) and step < len(value) else None
    return value.get(step) if isinstance(value, dict) else None
