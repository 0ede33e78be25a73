"""The spelling of one part of an address: readable where possible, percent-encoded where necessary."""

import re
from urllib.parse import unquote_to_bytes

from backstay.errors import InvalidAddress

PART_BYTES = 1_024

# Characters that are invisible or look alike. They are listed here, because the table of `unicodedata` changes with
# every Python version, and a stored spelling must keep its meaning forever.
_UNSEEN = (
    r"\x00-\x20\x7f-\xa0\xad\u034f"
    r"\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u115f-\u1160\u1680\u17b4-\u17b5\u180b-\u180f"
    r"\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164"
    r"\ud800-\uf8ff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe-\uffff"
    r"\U000110bd\U000110cd\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U0001fffe-\U0001ffff\U0002fffe-\U0002ffff\U0003fffe-\U0010ffff"
)
_HIDDEN_IN_PATH = re.compile(f"[%?#&={_UNSEEN}]+")
_HIDDEN_IN_PART = re.compile(f"[/%?#&={_UNSEEN}]+")


def spell_part(part: str) -> str:
    """The spelling of a part; no two parts have the same one."""
    if part.isascii() and part.isalnum():
        return part
    return _HIDDEN_IN_PART.sub(_percent, part)


def spell_path(path: str) -> str:
    """The spelling of a path, with its slashes; no two paths have the same one."""
    return _HIDDEN_IN_PATH.sub(_percent, path)


def _percent(run: re.Match[str]) -> str:
    return "".join([f"%{byte:02X}" for byte in run[0].encode("utf-8", "surrogateescape")])


def read_part(part: str, spelled: str) -> str:
    """The part with this spelling, or `InvalidAddress`. The caller checks whether the spelling is canonical."""
    return _read(part, spelled, "strict")


def read_path(spelled: str) -> str:
    """The path with this spelling, including bytes that are not UTF-8."""
    return _read("path", spelled, "surrogateescape")


def _read(part: str, spelled: str, errors: str) -> str:
    try:
        return unquote_to_bytes(spelled).decode("utf-8", errors)
    except UnicodeError:
        raise InvalidAddress(part, "is not valid UTF-8") from None


def check_part(part: str, value: object) -> str:
    """The value, if it can be used as this part, or `InvalidAddress`."""
    if type(value) is not str:
        raise InvalidAddress(part, f"is {_type_name(value)}, not text", hint=_conversion_hint(value))
    if not value:
        raise InvalidAddress(part, "is empty", hint="Pass a value, or omit it if it is optional.")
    if "\0" in value:
        raise InvalidAddress(part, "contains NUL")
    if len(value) > PART_BYTES or not value.isascii():
        _check_size(part, value)
    return value


def _check_size(part: str, value: str) -> None:
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidAddress(part, "contains a lone surrogate", hint="Remove lone surrogates.") from None
    if size > PART_BYTES:
        raise InvalidAddress(part, f"has {size} bytes, more than {PART_BYTES}", hint="Use a shorter id or its hash.")


def _type_name(value: object) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


def _conversion_hint(value: object) -> str:
    if isinstance(value, int):
        return f"Pass str({value!r})." if abs(value) < 1 << 64 else "Pass it as text."
    if isinstance(value, bytes):
        return "Decode it to text first."
    return "Pass a plain str."
