"""Messages in the shape of the Chat Completions API become ours, or are rejected with the location of the fault."""

from typing import Any

import pytest

from backstay.errors import InvalidPayload
from backstay.model import message
from backstay.model.content import Attachment, Text, Thought, ToolCall, ToolResult
from backstay.model.history.chat_messages import new_messages
from backstay.model.message import NewMessage

FILE = Attachment("0" * 64, "cat.png", "image/png", 7)
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"role": "user", "content": "hello"}, message.user("hello")),
        ({"role": "user", "content": "hello", "name": "Ada"}, message.user("hello")),
        ({"role": "developer", "content": "be brief"}, NewMessage(role="system", parts=(Text("be brief"),))),
        (
            {"role": "user", "content": [{"type": "text", "text": "look"}, FILE]},
            message.user([Text("look"), FILE]),
        ),
        (
            {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None, "annotations": []},
            message.assistant(ToolCall("call_1", "weather", {"city": "Rome"})),
        ),
        (
            {"role": "assistant", "content": "hm", "reasoning_content": "rain?"},
            message.assistant([Thought("rain?"), Text("hm")]),
        ),
        ({"role": "assistant", "refusal": "no"}, message.assistant("no")),
        ({"role": "tool", "tool_call_id": "call_1", "content": "sunny"}, message.tool(ToolResult("call_1", "sunny"))),
        (message.user("ours"), message.user("ours")),
    ],
)
def test_a_dictionary_becomes_the_message_that_it_describes(given: Any, expected: NewMessage) -> None:
    assert new_messages([given]) == [expected]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"role": "user"}, "messages[0] has no content"),
        ({"role": "user", "content": ""}, "messages[0] has no content"),
        ({"content": "hello"}, "messages[0] has the role None"),
        ({"role": "robot", "content": "hello"}, "messages[0] has the role 'robot'"),
        ({"role": "user", "content": 7}, "messages[0].content is int, not text"),
        ({"role": "user", "content": b"hello"}, "messages[0].content is bytes, not text"),
        ({"role": "user", "text": "hello"}, "messages[0] has an unknown field 'text'"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content[0] is of type 'image_url'"),
        ({"role": "user", "content": [7]}, "messages[0].content[0] is int"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text is NoneType"),
        ({"role": "tool", "content": "sunny"}, "messages[0].tool_call_id is NoneType, not text"),
        ({"role": "tool", "tool_call_id": "1", "content": [FILE]}, "content other than text"),
        ({"role": "assistant", "tool_calls": "x"}, "messages[0].tool_calls is str"),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, "messages[0].tool_calls[0] has no function"),
        (
            {"role": "assistant", "tool_calls": [{"id": "1", "function": {}}]},
            "messages[0].tool_calls[0].function.name is NoneType",
        ),
        ("hello", "messages[0] is str, not a message"),
        (None, "messages[0] is NoneType, not a message"),
    ],
)
def test_a_malformed_dictionary_is_refused_with_the_place_of_its_fault(given: Any, says: str) -> None:
    with pytest.raises(InvalidPayload) as refused:
        new_messages([given])
    assert str(refused.value.args[0]).startswith(says) or says in str(refused.value.args[0])
    assert refused.value.hint


@pytest.mark.parametrize("given", ["hello", {"role": "user", "content": "hello"}, None, 7])
def test_a_single_message_is_not_a_list_of_messages(given: Any) -> None:
    with pytest.raises(InvalidPayload, match="messages is"):
        new_messages(given)
