"""The streams of Anthropic's Messages API, and its checks of a request."""

import hashlib
import json
from typing import Any

from tests.agents.provider.fake_provider import Json, Play, Request, says

MODEL = "claude-tiny-1"


def event(kind: str, **fields: Json) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind} | fields)}\n\n".encode()


def sign(thinking: str) -> str:
    """The provider's signature of a thought."""
    return hashlib.sha256(thinking.encode()).hexdigest()


def start(**usage: int) -> bytes:
    counts = {"input_tokens": 3, "output_tokens": 1} | usage
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": [], "usage": counts}
    return event("message_start", message=message)


def block(index: int, content: Json, *deltas: Json) -> bytes:
    begin = event("content_block_start", index=index, content_block=content)
    between = b"".join(event("content_block_delta", index=index, delta=delta) for delta in deltas)
    return begin + between + event("content_block_stop", index=index)


def words(index: int, *texts: str) -> bytes:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": text} for text in texts))


def thought(index: int, text: str) -> bytes:
    deltas = [{"type": "thinking_delta", "thinking": text}, {"type": "signature_delta", "signature": sign(text)}]
    return block(index, {"type": "thinking", "thinking": "", "signature": ""}, *deltas)


def redacted(index: int, data: str) -> bytes:
    return block(index, {"type": "redacted_thinking", "data": data})


def wants(index: int, id: str, name: str, arguments: str) -> bytes:
    """A tool call whose arguments come in two pieces."""
    half = len(arguments) // 2
    pieces = [{"type": "input_json_delta", "partial_json": text} for text in ("", arguments[:half], arguments[half:])]
    return block(index, {"type": "tool_use", "id": id, "name": name, "input": {}}, *pieces)


def end(reason: str = "end_turn", **usage: int) -> bytes:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return event("message_delta", delta=delta, usage={"output_tokens": 9} | usage) + event("message_stop")


def answers(text: str) -> Play:
    """A whole answer."""
    return says(start(), event("ping"), words(0, text), end())


def calls(*wanted: bytes) -> Play:
    """A whole request for tools."""
    return says(start(), *wanted, end("tool_use"))


def check(request: Request) -> None:
    """Assert that the request is valid; the API would answer 400 to any other."""
    body = request.body
    assert request.path == "/v1/messages"
    assert request.headers["anthropic-version"] == "2023-06-01"
    assert body["max_tokens"] > body.get("thinking", {}).get("budget_tokens", 0)
    assert all(set(tool) <= {"name", "description", "input_schema"} for tool in body.get("tools", ()))
    assert all(tool["input_schema"]["type"] == "object" for tool in body.get("tools", ()))
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"], "the last message is the user's"
    waiting: list[str] = []
    for message in body["messages"]:
        waiting = _check_message(message, waiting)
    assert waiting == []


def _check_message(message: Any, waiting: list[str]) -> list[str]:
    results = [part["tool_use_id"] for part in message["content"] if part["type"] == "tool_result"]
    assert sorted(results) == sorted(waiting), "each call is answered in the next message"
    assert [part["type"] for part in message["content"][: len(results)]] == ["tool_result"] * len(results)
    for part in message["content"]:
        if part["type"] == "text":
            assert part["text"].strip()
        elif part["type"] == "thinking":
            assert part["signature"] == sign(part["thinking"])
    uses = [part for part in message["content"] if part["type"] == "tool_use"]
    assert all(
        isinstance(part["input"], dict) and part["id"].replace("-", "").replace("_", "").isalnum() for part in uses
    )
    return [part["id"] for part in uses]
