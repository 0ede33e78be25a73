"""Files reach models as parts of their provider's API, or are refused before any request."""

import base64
from typing import Any

import pytest

from backstay.errors import InputRefused
from backstay.model.content import Attachment, Text, ToolCall, ToolResult
from backstay.model.message import NewMessage, assistant, tool, user
from tests.agents.fake_turn import LooseTurn
from tests.agents.provider.fake_provider import answers
from tests.agents.provider.provider_turn import TurnResult, ask

CONTENTS = {
    "png": b"\x89PNG pixels",
    "pdf": b"%PDF pages",
    "wav": b"RIFF sound",
    "mp3": b"ID3 sound",
    "txt": "grüner tee".encode(),
    "json": b'{"tea": 1}',
    "bin": b"\x00\x01",
    "latin": "grün".encode("latin-1"),
}
KINDS = {
    "png": "image/png",
    "pdf": "application/pdf",
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "txt": "text/plain; charset=utf-8",
    "json": "application/json",
    "bin": "application/octet-stream",
    "latin": "text/plain",
}
EVERYTHING = ("image/*", "application/pdf", "audio/*")


def file(ending: str) -> Attachment:
    return Attachment(ending, f"tea.{ending}", KINDS[ending], len(CONTENTS[ending]))


def encoded(ending: str) -> str:
    return base64.b64encode(CONTENTS[ending]).decode()


def told(content: Any, *history: NewMessage, **settings: Any) -> TurnResult:
    return ask(answers("so"), turn=LooseTurn(content, history=history, files=CONTENTS), **settings)


@pytest.mark.parametrize(
    ("ending", "part"),
    [
        ("png", {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded('png')}"}}),
        (
            "pdf",
            {
                "type": "file",
                "file": {"filename": "tea.pdf", "file_data": f"data:application/pdf;base64,{encoded('pdf')}"},
            },
        ),
        ("wav", {"type": "input_audio", "input_audio": {"data": encoded("wav"), "format": "wav"}}),
        ("mp3", {"type": "input_audio", "input_audio": {"data": encoded("mp3"), "format": "mp3"}}),
    ],
)
def test_a_file_is_sent_as_the_part_of_its_kind(ending: str, part: dict[str, Any]) -> None:
    [messages] = told([Text("look"), file(ending)], accepts=EVERYTHING).sent
    [alone] = told(file(ending), accepts=EVERYTHING).sent

    assert messages == [{"role": "user", "content": [{"type": "text", "text": "look"}, part]}]
    assert alone == [{"role": "user", "content": [part]}]


def test_a_text_file_is_sent_as_text_to_every_model() -> None:
    [messages] = told([Text("read"), file("txt"), file("json")]).sent

    assert messages[0]["content"] == 'read\nFile tea.txt:\ngrüner tee\nFile tea.json:\n{"tea": 1}'


def test_files_of_earlier_messages_are_sent_again() -> None:
    [messages] = told("and?", user([Text("look"), file("png")]), assistant("nice"), accepts=EVERYTHING).sent

    assert messages[0]["content"][1]["type"] == "image_url"


@pytest.mark.parametrize("ending", ["png", "bin", "latin"])
def test_a_file_that_the_model_does_not_read_is_refused_before_any_request(ending: str) -> None:
    result = told([Text("look"), file(ending)])

    assert isinstance(result.error, InputRefused)
    assert f"'tea.{ending}'" in str(result.error)
    assert result.requests == []
    assert result.bodies == []


def test_a_file_that_is_too_large_for_a_request_is_refused() -> None:
    large = Attachment("large", "large.png", "image/png", 1)
    turn = LooseTurn(large, files={"large": bytes((20 << 20) + 1)})

    result = ask(turn=turn, accepts=EVERYTHING)

    assert isinstance(result.error, InputRefused)
    assert result.requests == []


def test_the_latest_files_are_sent_if_not_all_fit() -> None:
    files = {name: bytes(8 << 20) + name.encode() for name in "abc"}
    history = [user(Attachment(name, f"{name}.png", "image/png", 1)) for name in "ab"]
    turn = LooseTurn(Attachment("c", "c.png", "image/png", 1), history=history, files=files)

    [messages] = ask(answers("so"), turn=turn, accepts=EVERYTHING).sent

    kinds = [part["type"] for part in messages[0]["content"]]
    assert kinds == ["text", "image_url", "image_url"]
    assert "a.png" in messages[0]["content"][0]["text"]


def test_a_note_stands_for_an_earlier_file_that_this_model_does_not_read() -> None:
    [messages] = told("and?", user([Text("look"), file("png")]), assistant("nice")).sent

    assert messages[0]["content"].startswith("look\n(The file tea.png was attached here.")


def test_arguments_of_a_clients_tool_are_sent_unchanged() -> None:
    big = '{"id": 123456789012345678901234567890}'
    [messages] = told(
        "and?", user("look"), assistant(ToolCall("a", "look", big)), tool(ToolResult("a", "seen")), assistant("so")
    ).sent

    assert messages[1]["tool_calls"][0]["function"]["arguments"] == big
