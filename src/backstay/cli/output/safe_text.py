"""Makes stored text safe to print: text of people, agents and tools cannot control the terminal."""

import re

# Characters that start an escape sequence, reorder the visible text, or break a line.
_CONTROL = r"\x00-\x1f\x7f-\x9f"
_REORDERING = r"\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufff9-\ufffb"
_HARMFUL = re.compile(f"[{_CONTROL}{_REORDERING}\ud800-\udfff]")
_IN_JSON = re.compile(f"[\\x7f-\\x9f{_REORDERING}]")
_LINE_ENDS = re.compile(r"\r\n?")


def one_line(text: str) -> str:
    """Return the text on one line, with each control character replaced by a symbol."""
    return _HARMFUL.sub(_visible, " ".join(text.split()) if "\n" in text or "\r" in text else text)


def lines(text: str) -> str:
    """Return the text with its line breaks and tabs, and each other control character replaced by a symbol."""
    return _HARMFUL.sub(_visible_unless_layout, _LINE_ENDS.sub("\n", text))


def in_json(document: bytes) -> str:
    """Return the same JSON with the characters escaped that control a terminal; its meaning does not change."""
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", document.decode())


def _visible(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"


def _visible_unless_layout(found: re.Match[str]) -> str:
    return found[0] if found[0] in "\n\t" else _visible(found)
