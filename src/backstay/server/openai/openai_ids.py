"""Ids of the OpenAI-compatible API, and their conversion from and to our ids.

A conversation is a session, and a response is a turn. An item is one or more parts of a message: its id has the id of
the message and the index of the first part. The ids of an agent's items are known while it produces them.
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


class ItemPosition(NamedTuple):
    """The position of an item: its message, and the index of its first part."""

    message: MessageId
    part: int


def conversation_name(session: SessionId) -> str:
    """The conversation id of a session."""
    return f"conv_{session[4:]}"


def session_named(name: str) -> SessionId:
    """The session id of a conversation id; raises `NotFound` if it is malformed."""
    if not name.startswith("conv_"):
        raise NotFound(
            f"{name[:64]!r} is not a conversation id", hint="An id looks like conv_01hzx… with 26 letters and digits."
        )
    return check_session_id(f"ses_{name[5:]}")


def response_name(turn: TurnId) -> str:
    """The response id of a turn."""
    return f"resp_{turn[4:]}"


def turn_named(name: str) -> TurnId:
    """The turn id of a response id; raises `NotFound` if it is malformed."""
    if not name.startswith("resp_"):
        raise NotFound(
            f"{name[:64]!r} is not a response id", hint="An id looks like resp_01hzx… with 26 letters and digits."
        )
    return check_turn_id(f"trn_{name[5:]}")


def item_name(kind: str, position: ItemPosition) -> str:
    """The id of an item of this type."""
    name = f"{_PREFIXES.get(kind, _OTHER)}_{position.message[4:]}"
    return f"{name}_{position.part}" if position.part else name


def position_of_item(name: str) -> ItemPosition:
    """The position in an item id; raises `NotFound` if it is malformed. Does not check the item's type."""
    match = _ITEM.fullmatch(name)
    if match is None:
        raise NotFound(f"{name[:64]!r} is not an item id", hint="An id looks like msg_01hzx…, as in the list of items.")
    return ItemPosition(check_message_id(f"msg_{match[2]}"), int(match[3] or 0))
