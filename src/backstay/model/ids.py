"""Ids: a prefix for the kind of thing, and a UUIDv7 in base32, which sorts by time.

An id is a name and not a secret: every verb also checks the owner.
"""

import hashlib
import os
import re
import threading
from typing import NewType

from backstay.clock import Clock
from backstay.errors import NotFound

SessionId = NewType("SessionId", str)
WindowId = NewType("WindowId", str)
TurnId = NewType("TurnId", str)
MessageId = NewType("MessageId", str)
WorkerId = NewType("WorkerId", str)
UploadId = NewType("UploadId", str)
TokenId = NewType("TokenId", str)
ImportId = NewType("ImportId", str)
ScheduleId = NewType("ScheduleId", str)
DeliveryId = NewType("DeliveryId", str)
NoticeId = NewType("NoticeId", str)

# The reference shows these: a NewType has no docstring of its own.
SessionId.__doc__ = "The id of a session, such as `ses_01kb…`; text."
WindowId.__doc__ = "The id of a window, such as `win_01kb…`; text."
TurnId.__doc__ = "The id of a turn, such as `trn_01kb…`; text."
MessageId.__doc__ = "The id of a message, such as `msg_01kb…`; text."
ScheduleId.__doc__ = "The id of a schedule, such as `sch_01kb…`; text."

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
# 26 letters are 130 bits, so the first is 0 to 7; the eleventh contains the UUID's version, the fourteenth its variant.
_LETTER = "[0-9a-hjkmnp-tv-z]"
_SHAPE = f"[0-7]{_LETTER}{{9}}[ef]{_LETTER}{{2}}[89abrstv]{_LETTER}{{12}}"
_NOUNS = {
    "ses": "session",
    "win": "window",
    "trn": "turn",
    "msg": "message",
    "wrk": "worker",
    "upl": "upload",
    "tok": "token",
    "sch": "schedule",
    "dlv": "delivery",
}
_MATCH = {prefix: re.compile(f"{prefix}_{_SHAPE}").fullmatch for prefix in _NOUNS}

_VERSION = 7 << 76
_VARIANT = 2 << 62
_TAIL_BITS = 74
_LOW_MASK = (1 << 62) - 1


class IdSource:
    """Creates ids that never repeat and never sort before an earlier one of the same source. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._moment = -1
        self._tail = 0
        self._head = ""
        self._head_of = -1

    def session(self) -> SessionId:
        return SessionId("ses_" + self._letters())

    def window(self) -> WindowId:
        return WindowId("win_" + self._letters())

    def turn(self) -> TurnId:
        return TurnId("trn_" + self._letters())

    def message(self) -> MessageId:
        return MessageId("msg_" + self._letters())

    def worker(self) -> WorkerId:
        return WorkerId("wrk_" + self._letters())

    def upload(self) -> UploadId:
        return UploadId("upl_" + self._letters())

    def token(self) -> TokenId:
        return TokenId("tok_" + self._letters())

    def import_id(self) -> ImportId:
        return ImportId("imp_" + self._letters())

    def schedule(self) -> ScheduleId:
        return ScheduleId("sch_" + self._letters())

    def delivery(self) -> DeliveryId:
        return DeliveryId("dlv_" + self._letters())

    def notice(self) -> NoticeId:
        return NoticeId("ntc_" + self._letters())

    def _letters(self) -> str:
        with self._lock:
            now = self._clock.now()
            if now > self._moment:
                # The top bit is clear, so that the ids of one millisecond can be counted up.
                self._moment, self._tail = now, _random_bits(_TAIL_BITS - 1)
                self._head_of = -1
            else:
                self._tail += 1
            if self._tail >> 20 != self._head_of:
                # Ids of one millisecond differ only in their last letters.
                self._head, self._head_of = _spell(self._moment, self._tail)[:22], self._tail >> 20
            return self._head + _PAIRS[self._tail >> 10 & 1023] + _PAIRS[self._tail & 1023]


def _random_bits(count: int) -> int:
    """Unpredictable bits of the operating system. (`secrets` does the same, and loads ten modules.)"""
    return int.from_bytes(os.urandom(count // 8 + 1)) & (1 << count) - 1


def _spell(moment: int, tail: int) -> str:
    value = (moment << 80) | _VERSION | ((tail >> 62) << 64) | _VARIANT | (tail & _LOW_MASK)
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in range(120, -1, -10)])


def check_session_id(text: str) -> SessionId:
    """The same text as a session id, or `NotFound` if it does not have the form of one."""
    return SessionId(_check(text, "ses"))


def check_window_id(text: str) -> WindowId:
    """The same text as a window id, or `NotFound`."""
    return WindowId(_check(text, "win"))


def check_turn_id(text: str) -> TurnId:
    """The same text as a turn id, or `NotFound`."""
    return TurnId(_check(text, "trn"))


def check_message_id(text: str) -> MessageId:
    """The same text as a message id, or `NotFound`."""
    return MessageId(_check(text, "msg"))


def check_upload_id(text: str) -> UploadId:
    """The same text as an upload id, or `NotFound`."""
    return UploadId(_check(text, "upl"))


def check_token_id(text: str) -> TokenId:
    """The same text as a token id, or `NotFound`."""
    return TokenId(_check(text, "tok"))


def check_schedule_id(text: str) -> ScheduleId:
    """The same text as a schedule id, or `NotFound`."""
    return ScheduleId(_check(text, "sch"))


def check_delivery_id(text: str) -> DeliveryId:
    """The same text as a delivery id, or `NotFound`."""
    return DeliveryId(_check(text, "dlv"))


def message_of(turn: TurnId, index: int) -> MessageId:
    """The id of the message at this index of a turn's output, known before the message is stored.

    The top bit of the tail is set. An `IdSource` never sets it, so these ids cannot collide with others.
    """
    digest = hashlib.blake2b(f"{turn} {index}".encode(), digest_size=10).digest()
    tail = 1 << (_TAIL_BITS - 1) | int.from_bytes(digest) & (1 << (_TAIL_BITS - 1)) - 1
    return MessageId("msg_" + _spell(moment_of(turn), tail))


def earliest_worker(moment: int) -> WorkerId:
    """Sorts before every worker id created at this millisecond or later."""
    return WorkerId("wrk_" + _spell(max(moment, 0), 0))


def moment_of(text: str) -> int:
    """The millisecond at which this id was created."""
    value = 0
    for letter in text[4:14]:
        value = value << 5 | _ALPHABET.index(letter)
    return value


def _check(text: object, prefix: str) -> str:
    if isinstance(text, str) and _MATCH[prefix](text):
        return text
    shown = repr(text) if len(repr(text)) <= 64 else repr(text)[:61] + "..."
    raise NotFound(
        f"{shown} is not a {_NOUNS[prefix]} id", hint=f"An id looks like {prefix}_01hzx… with 26 letters and digits."
    )
