"""Images and files through the official client: stored as attachments, read by agents, never fetched."""

import base64
import zlib
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import openai
import pytest

from tests.server.openai.openai_client import Ai, client_of, fault
from tests.server.running_server import RunningServer

# These tests are about code above the store, or about rules of its contract: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")

PNG = b"\x89PNG\r\n\x1a\n and some pixels"
PDF = b"%PDF-1.7 and some pages"
TEXT = b"green tea"


@pytest.fixture
def server(shared_server: RunningServer) -> RunningServer:
    return shared_server.for_somebody_new()


@pytest.fixture
def ai(server: RunningServer) -> Iterator[Ai]:
    with client_of(server) as client:
        yield client


def url_of(data: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def named(data: bytes) -> str:
    return sha256(data).hexdigest()


def seen(name: str, kind: str, data: bytes) -> str:
    return f"{name} {kind} {zlib.crc32(data)} True;"


def uploaded(server: RunningServer, data: bytes) -> str:
    with server.client() as client:
        upload = client.post("/api/uploads").json()["id"]
        octets = {"content-type": "application/octet-stream"}
        client.put(f"/api/uploads/{upload}?start=0", content=data, headers=octets).raise_for_status()
        return str(client.post(f"/api/uploads/{upload}/finish", json={}).json()["hash"])


def user(*content: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "input_text", "text": "look"}, *content]}]


FILES: list[tuple[dict[str, Any], str]] = [
    ({"type": "input_image", "image_url": url_of(PNG, "image/png")}, seen("image.png", "image/png", PNG)),
    (
        {"type": "input_image", "image_url": url_of(PNG, "image/png"), "detail": "high"},
        seen("image.png", "image/png", PNG),
    ),
    (
        {"type": "input_file", "filename": "report.pdf", "file_data": url_of(PDF, "application/pdf")},
        seen("report.pdf", "application/pdf", PDF),
    ),
    (
        {"type": "input_file", "filename": "tea.txt", "file_data": base64.b64encode(TEXT).decode()},
        seen("tea.txt", "text/plain", TEXT),
    ),
    ({"type": "input_file", "file_data": url_of(PDF, "application/pdf")}, seen("file.pdf", "application/pdf", PDF)),
]
CHAT_FILES: list[tuple[dict[str, Any], str]] = [
    ({"type": "image_url", "image_url": {"url": url_of(PNG, "image/png")}}, seen("image.png", "image/png", PNG)),
    (
        {"type": "file", "file": {"filename": "report.pdf", "file_data": url_of(PDF, "application/pdf")}},
        seen("report.pdf", "application/pdf", PDF),
    ),
    (
        {"type": "input_audio", "input_audio": {"data": base64.b64encode(TEXT).decode(), "format": "wav"}},
        seen("audio.wav", "audio/wav", TEXT),
    ),
]


@pytest.mark.parametrize(("part", "expected"), FILES)
def test_an_agent_reads_the_images_and_files_of_a_response(ai: Ai, part: dict[str, Any], expected: str) -> None:
    response = ai.responses.create(model="looker", input=user(part))
    again = ai.responses.create(model="looker", input="and now?", previous_response_id=response.id)

    assert response.output_text == f"{expected} look"
    assert again.output_text == f"{expected} and now?"


@pytest.mark.parametrize(("part", "expected"), CHAT_FILES)
def test_an_agent_reads_the_images_and_files_of_a_completion(ai: Ai, part: dict[str, Any], expected: str) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "look"}, part]}]

    done = ai.chat.completions.create(model="looker", messages=messages)

    assert done.choices[0].message.content == f"{expected} look"


def test_a_file_that_was_uploaded_is_named_by_its_id(server: RunningServer, ai: Ai) -> None:
    picture, report, note = uploaded(server, PNG), uploaded(server, PDF), uploaded(server, TEXT)

    response = ai.responses.create(
        model="looker",
        input=user(
            {"type": "input_image", "file_id": picture},
            {"type": "input_file", "file_id": report},
            {"type": "input_file", "file_id": note, "filename": "tea.txt"},
        ),
    )

    files = seen("image.png", "image/png", PNG) + seen("file.pdf", "application/pdf", PDF)
    assert response.output_text == files + seen("tea.txt", "text/plain", TEXT) + " look"


def test_a_message_may_consist_of_a_file_alone(ai: Ai) -> None:
    response = ai.responses.create(
        model="looker", input=[{"role": "user", "content": [FILES[0][0]]}], extra_headers={"Idempotency-Key": "one"}
    )

    assert response.output_text == f"{FILES[0][1]} "


def test_a_file_larger_than_other_bodies_is_accepted(ai: Ai) -> None:
    large = PNG + bytes(3 << 20)

    response = ai.responses.create(
        model="looker", input=user({"type": "input_image", "image_url": url_of(large, "image/png")})
    )

    assert response.output_text == f"{seen('image.png', 'image/png', large)} look"


def test_items_show_a_file_by_its_id_and_can_be_sent_again(ai: Ai) -> None:
    conversation = ai.conversations.create(items=user(FILES[0][0], FILES[2][0])).id

    (item,) = [one.to_dict() for one in ai.conversations.items.list(conversation)]
    response = ai.responses.create(model="looker", input=[item])

    assert item["content"][1:] == [
        {"type": "input_image", "file_id": named(PNG), "detail": "auto"},
        {"type": "input_file", "file_id": named(PDF), "filename": "report.pdf"},
    ]
    assert response.output_text == f"{FILES[0][1]}{FILES[2][1]} look"


def test_an_item_keeps_the_detail_of_its_image(ai: Ai) -> None:
    conversation = ai.conversations.create(items=user(FILES[1][0])).id

    (item,) = [one.to_dict() for one in ai.conversations.items.list(conversation)]

    assert item["content"][1] == {"type": "input_image", "file_id": named(PNG), "detail": "high"}
    assert ai.responses.create(model="looker", input="?", conversation=conversation).output_text.startswith("image.png")


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"type": "input_image", "image_url": "https://example.org/cat.png"}, "image_url", "unsupported_url"),
    ({"type": "input_image", "image_url": "file:///etc/passwd"}, "image_url", "unsupported_url"),
    ({"type": "input_file", "file_url": "https://example.org/a.pdf"}, "file_url", "unsupported_url"),
    ({"type": "input_image", "image_url": "data:image/png;base64,%%%"}, "image_url", "invalid_base64"),
    ({"type": "input_image", "image_url": "data:nonsense"}, "image_url", "invalid_value"),
    ({"type": "input_image", "image_url": url_of(PDF, "application/pdf")}, "image_url", "invalid_value"),
    ({"type": "input_image", "file_id": "0" * 64}, "file_id", "file_not_found"),
    ({"type": "input_image", "file_id": "file-abc"}, "file_id", "file_not_found"),
    ({"type": "input_file", "filename": "a.pdf"}, "file_data", "invalid_value"),
]


@pytest.mark.parametrize(("part", "field", "code"), REFUSED)
def test_a_file_that_cannot_be_stored_is_refused_and_starts_nothing(
    server: RunningServer, ai: Ai, part: dict[str, Any], field: str, code: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ai.responses.create(model="looker", input=user(part))

    told = fault(refused.value)
    assert (told["param"], told["code"]) == (f"input[0].content[1].{field}", code)
    with server.client() as client:
        assert client.get("/api/sessions").json()["sessions"] == []


def test_a_url_in_a_completion_is_refused(ai: Ai) -> None:
    part = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/cat.png"}}

    with pytest.raises(openai.BadRequestError) as refused:
        ai.chat.completions.create(model="looker", messages=[{"role": "user", "content": [part]}])

    assert fault(refused.value)["param"] == "messages[0].content[0].image_url.url"


def test_a_file_of_another_owner_is_not_found(server: RunningServer, ai: Ai) -> None:
    theirs = uploaded(server.for_somebody_new(), PNG)

    with pytest.raises(openai.BadRequestError) as refused:
        ai.responses.create(model="looker", input=user({"type": "input_image", "file_id": theirs}))

    assert fault(refused.value)["code"] == "file_not_found"
