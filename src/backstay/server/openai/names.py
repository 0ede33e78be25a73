"""Names: what a session, a turn and a part of a message are called on this wire. Each has one name, and back.

A conversation is a session, a response is a turn. An item is some parts of a message: its name says which message, and
which is its first part. Names of what an agent says are known while it is being said.
"""

import re
from typing import NamedTuple

from backstay.errors import NotFound
from backstay.model.ids import (
    MessageId,
    SessionId,
    TurnId,
    check_message_id,
    check_session_id,
    check_turn_id,
)

_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "mcp_call": "mcp",
    "compaction": "cmp",
}
_OTHER = "item"
_ITEM = re.compile(r"(msg|rs|fc|fco|mcp|cmp|item)_([0-9a-z]{26})(?:_([1-9][0-9]{0,5}))?", re.ASCII)


class Spot(NamedTuple):
    """Where an item begins: in which message, and with which of its parts."""

    message: MessageId
    part: int


def conversation_name(session: SessionId) -> str:
    """What a session is called."""
    return f"conv_{session[4:]}"


def session_named(name: str) -> SessionId:
    """The session that a conversation is; `NotFound` if it can be none."""
    if not name.startswith("conv_"):
        raise NotFound(
            f"{name[:64]!r} is no conversation id", hint="It looks like conv_01hzx… with 26 letters and digits."
        )
    return check_session_id(f"ses_{name[5:]}")


def response_name(turn: TurnId) -> str:
    """What a turn is called."""
    return f"resp_{turn[4:]}"


def turn_named(name: str) -> TurnId:
    """The turn that a response is; `NotFound` if it can be none."""
    if not name.startswith("resp_"):
        raise NotFound(f"{name[:64]!r} is no response id", hint="It looks like resp_01hzx… with 26 letters and digits.")
    return check_turn_id(f"trn_{name[5:]}")


def item_name(kind: str, spot: Spot) -> str:
    """What an item of this type is called."""
    name = f"{_PREFIXES.get(kind, _OTHER)}_{spot.message[4:]}"
    return f"{name}_{spot.part}" if spot.part else name


def spot_named(name: str) -> Spot:
    """Where the item of this name begins; `NotFound` if it can be none. Whether it has this type is seen there."""
    match = _ITEM.fullmatch(name)
    if match is None:
        raise NotFound(f"{name[:64]!r} is no item id", hint="It looks like msg_01hzx…, as it was listed.")
    return Spot(check_message_id(f"msg_{match[2]}"), int(match[3] or 0))
