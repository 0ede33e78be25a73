"""The streams of the Gemini API, and its checks of a request."""

import hashlib
import json
from typing import Any

from tests.agents.provider.fake_provider import Json, Play, Request, says

MODEL = "gemini-tiny-001"
NO_SIGNATURE = "skip_thought_signature_validator"


def chunk(*parts: Json, finish: str | None = None, **usage: int) -> bytes:
    candidate: dict[str, Json] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    counts = {"promptTokenCount": 3, "totalTokenCount": 3} | usage
    return event({"candidates": [candidate], "usageMetadata": counts, "modelVersion": MODEL, "responseId": "r"})


def event(value: Json) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\r\n\r\n"


def sign(name: str, arguments: Json) -> str:
    """The provider's signature of a call."""
    return hashlib.sha256(json.dumps([name, arguments], sort_keys=True).encode()).hexdigest()


def words(text: str) -> bytes:
    return chunk({"text": text})


def thought(text: str) -> bytes:
    return chunk({"text": text, "thought": True})


def wants(id: str | None, name: str, arguments: Json, *, signed: bool = True) -> bytes:
    call = {"name": name, "args": arguments} | ({"id": id} if id else {})
    return chunk({"functionCall": call} | ({"thoughtSignature": sign(name, arguments)} if signed else {}))


def end(reason: str = "STOP", **usage: int) -> bytes:
    return chunk({"text": ""}, finish=reason, **({"candidatesTokenCount": 9} | usage))


def answers(text: str) -> Play:
    """A whole answer, whose last part has a signature, as newer models send it."""
    return says(words(text), chunk({"text": "", "thoughtSignature": "c2ln"}), end())


def calls(*wanted: bytes) -> Play:
    """A whole request for tools."""
    return says(*wanted, end())


def check(request: Request) -> None:
    """Assert that the request is valid; the API would answer 400 to any other."""
    assert request.path == "/v1beta/models/tiny:streamGenerateContent?alt=sse"
    contents = request.body["contents"]
    roles = [content["role"] for content in contents]
    assert roles == ["user", "model"] * (len(roles) // 2) + ["user"]
    waiting: list[Any] = []
    for content in contents:
        assert content["parts"]
        results = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        assert [(result["id"], result["name"]) for result in results] == waiting
        assert all(isinstance(result["response"], dict) for result in results)
        called = [part for part in content["parts"] if "functionCall" in part]
        _check_signatures(called)
        waiting = [(part["functionCall"]["id"], part["functionCall"]["name"]) for part in called]
    assert waiting == []
    for tool in request.body.get("tools", ()):
        for declared in tool["functionDeclarations"]:
            assert "parametersJsonSchema" not in declared or declared["parametersJsonSchema"]["properties"]


def _check_signatures(called: list[Any]) -> None:
    """The first call of a step needs a signature, and every signature belongs to its call."""
    assert not called or "thoughtSignature" in called[0]
    for part in called:
        signature, call = part.get("thoughtSignature", NO_SIGNATURE), part["functionCall"]
        assert signature in (NO_SIGNATURE, sign(call["name"], call["args"]))
