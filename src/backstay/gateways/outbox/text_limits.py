"""Long texts in messages of limited length: cut at the ends of blocks, with code fences closed and opened again."""

import re
from typing import NamedTuple

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n`]*)$")
# A cut in the first half of a message would make many short ones.
_LEAST_SHARE = 0.5
# The longest fence and language that are repeated.
_LONGEST_MARK = 20


class Fence(NamedTuple):
    """An open code fence: its mark, and its language."""

    mark: str
    language: str

    @property
    def opening(self) -> str:
        """The line that opens it again."""
        return f"{self.mark}{self.language}\n"

    @property
    def closing(self) -> str:
        """The line that closes it."""
        return f"\n{self.mark}"


def units(text: str) -> int:
    """The length of a text in UTF-16 code units, in which platforms count."""
    return len(text) + sum(1 for character in text if ord(character) > 0xFFFF)


def fence_at(text: str, end: int) -> Fence | None:
    """The code fence that is open after the first `end` characters of a Markdown text, or None."""
    return _after_lines(None, text[:end].splitlines())


def next_cut(text: str, start: int, limit: int) -> int:
    """Where the message that begins at `start` ends: with its fences it has at most `limit` UTF-16 units.

    Args:
        text: A Markdown text.
        start: Where the message begins.
        limit: How long a message may be; at least 100.

    Returns:
        The character after the last one of the message.

    Raises:
        ValueError: The limit is less than 100.
    """
    if limit < 100:
        raise ValueError(f"a message of {limit} units is too short to cut a text well")
    fence = fence_at(text, start)
    room = limit - (0 if fence is None else len(fence.opening))
    if len(text) - start <= room and units(text[start:]) <= room:
        return len(text)
    # A fence that is open at the cut has to be closed.
    end = _reach(text, start, room - _LONGEST_MARK)
    least = start + int((end - start) * _LEAST_SHARE)
    for cut in (_after_block(text, start, least, end, fence), text.rfind("\n", least, end) + 1):
        if cut > least:
            return cut
    space = text.rfind(" ", least, end) + 1
    return space if space > least else end


def piece(text: str, start: int, end: int) -> str:
    """The characters `start` to `end` as a Markdown text of their own: an open fence is repeated."""
    before, after = fence_at(text, start), fence_at(text, end)
    body = text[start:end]
    if after is not None and end < len(text):
        body = body.removesuffix("\n") + after.closing
    return (before.opening if before is not None else "") + body


def _reach(text: str, start: int, room: int) -> int:
    """The last character that still fits."""
    used, end = 0, start
    while end < len(text):
        used += 2 if ord(text[end]) > 0xFFFF else 1
        if used > room:
            break
        end += 1
    return end


def _after_block(text: str, start: int, least: int, end: int, fence: Fence | None) -> int:
    """The last position after an empty line outside of fences, or after the end of a fence; 0 if there is none."""
    cut, position = 0, start
    for line in text[start:end].splitlines(keepends=True):
        position += len(line)
        was, fence = fence, _after_lines(fence, [line.rstrip("\r\n")])
        whole = line.endswith("\n") and position > least
        if whole and fence is None and (not line.strip() or was is not None):
            cut = position
    return cut


def _after_lines(fence: Fence | None, lines: list[str]) -> Fence | None:
    """The fence that is open after these lines."""
    for line in lines:
        found = _FENCE.match(line)
        if found is None:
            continue
        mark, language = found[1], found[2].strip()
        if fence is None:
            if len(mark) <= _LONGEST_MARK // 2:
                fence = Fence(mark, language if len(language) <= _LONGEST_MARK else "")
        elif mark.startswith(fence.mark) and not language:
            fence = None
    return fence
