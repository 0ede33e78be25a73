"""The history as an agent reads it: every call has exactly one result, directly after it."""

import pytest

from backstay.model.content import Part, Role, Text, ToolCall, ToolResult
from backstay.model.history.projection import INTERRUPTED, readable
from backstay.model.ids import MessageId
from backstay.model.message import Message

A, B = ToolCall("a", "look"), ToolCall("b", "read")
DONE_A, DONE_B = ToolResult("a", "seen"), ToolResult("b", "text")
UNKNOWN_A, UNKNOWN_B = (ToolResult(call, INTERRUPTED, error=True) for call in "ab")
HELLO = Text("hello")

Shape = list[tuple[Role, tuple[Part, ...]]]


def history(shape: Shape) -> list[Message]:
    return [
        Message(id=MessageId(f"m{index}"), position=index, turn=None, role=role, parts=parts, at=index)
        for index, (role, parts) in enumerate(shape)
    ]


ANSWERED: Shape = [("user", (HELLO,)), ("assistant", (A, B)), ("tool", (DONE_A, DONE_B)), ("assistant", (HELLO,))]

CASES: dict[str, tuple[Shape, Shape]] = {
    "nothing to pair": ([("user", (HELLO,)), ("assistant", (HELLO,))], [("user", (HELLO,)), ("assistant", (HELLO,))]),
    "answered calls": (ANSWERED, ANSWERED),
    "results in several messages are joined": (
        [("assistant", (A, B)), ("tool", (DONE_B,)), ("tool", (DONE_A,))],
        [("assistant", (A, B)), ("tool", (DONE_A, DONE_B))],
    ),
    "a call without a result": ([("assistant", (A,))], [("assistant", (A,)), ("tool", (UNKNOWN_A,))]),
    "one of two calls without a result": (
        [("assistant", (A, B)), ("tool", (DONE_A,)), ("user", (HELLO,))],
        [("assistant", (A, B)), ("tool", (DONE_A, UNKNOWN_B)), ("user", (HELLO,))],
    ),
    "a result after another message is not of this call": (
        [("assistant", (A,)), ("user", (HELLO,)), ("tool", (DONE_A,))],
        [("assistant", (A,)), ("tool", (UNKNOWN_A,)), ("user", (HELLO,))],
    ),
    "a result without its call": ([("summary", (HELLO,)), ("tool", (DONE_A,))], [("summary", (HELLO,))]),
    "only the first of two results counts": (
        [("assistant", (A,)), ("tool", (DONE_A,)), ("tool", (ToolResult("a", "later"),))],
        [("assistant", (A,)), ("tool", (DONE_A,))],
    ),
    "a result inside the message of its call": (
        [("assistant", (A, DONE_A, HELLO))],
        [("assistant", (A, DONE_A, HELLO))],
    ),
    "a repeated id belongs to the nearest call": (
        [("assistant", (A,)), ("tool", (DONE_A,)), ("assistant", (A,))],
        [("assistant", (A,)), ("tool", (DONE_A,)), ("assistant", (A,)), ("tool", (UNKNOWN_A,))],
    ),
}


@pytest.mark.parametrize(("shape", "expected"), CASES.values(), ids=CASES)
def test_every_call_is_answered_once_directly_after_it(shape: Shape, expected: Shape) -> None:
    assert [(message.role, message.parts) for message in readable(history(shape))] == expected


@pytest.mark.parametrize(("shape", "_"), CASES.values(), ids=CASES)
def test_a_readable_history_stays_as_it_is(shape: Shape, _: Shape) -> None:
    once = readable(history(shape))

    assert [message.parts for message in readable(once)] == [message.parts for message in once]


def test_an_added_result_is_at_the_position_of_its_call() -> None:
    _, result = readable(history([("assistant", (A,))]))

    assert (result.id, result.position, result.role) == ("m0", 0, "tool")
