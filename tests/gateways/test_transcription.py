"""Voice messages get a transcript beside the audio, if an endpoint is configured."""

from collections.abc import Iterator

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from backstay import Address, App, Attachment, Text
from backstay.config import TelegramSettings
from backstay.gateways.configured_gateways import telegram_options
from backstay.gateways.transcription import Transcription
from tests.databases import Place
from tests.gateways.fake_telegram import FakeTelegram, fake_telegram, served
from tests.gateways.running_gateway import QUICK, running, seen

pytestmark = pytest.mark.engines("sqlite")


class FakeEndpoint:
    """An endpoint like OpenAI's."""

    def __init__(self) -> None:
        self.requests: list[tuple[str | None, str, str, bytes]] = []
        self.answer: Response = JSONResponse({"text": " buy milk \0"})
        self.app = Starlette(routes=[Route("/v1/audio/transcriptions", self.transcribe, methods=["POST"])])
        self.url = ""

    async def transcribe(self, request: Request) -> Response:
        async with request.form() as form:
            file = form["file"]
            assert not isinstance(file, str)
            asked = (request.headers.get("authorization"), str(form["model"]), file.filename or "", await file.read())
        self.requests.append(asked)
        return self.answer


@pytest.fixture
def telegram() -> Iterator[FakeTelegram]:
    with fake_telegram() as fake:
        yield fake


@pytest.fixture
def endpoint() -> Iterator[FakeEndpoint]:
    fake = FakeEndpoint()
    with served(fake.app) as url:
        fake.url = url
        yield fake


async def _asked(app: App) -> list[object]:
    session = await app.session(Address.chat("telegram", "dm", chat="42", account="7"))
    return [part.name if isinstance(part, Attachment) else part for part in (await session.messages())[0].parts]


async def test_a_transcript_is_beside_the_audio(place: Place, telegram: FakeTelegram, endpoint: FakeEndpoint) -> None:
    telegram.files["hello"] = b"OggS hello"
    options = msgspec.structs.replace(QUICK, transcription=Transcription(url=f"{endpoint.url}/v1/", key="k"))
    async with running(place, telegram, options) as app:
        telegram.write("", voice="hello", number=3)
        await seen(telegram, 1)

        assert await _asked(app) == ["voice-3.ogg", Text("[transcript of voice-3.ogg]\nbuy milk")]
    async with running(place, telegram, options) as app:
        # A restart asks for no second one.
        telegram.write("thanks")
        await seen(telegram, 2)
        assert len(await _asked(app)) == 2
    assert endpoint.requests == [("Bearer k", "whisper-1", "voice-3.ogg", b"OggS hello")]


@pytest.mark.parametrize(
    "answer", [Response(status_code=500), Response("not JSON"), JSONResponse({"words": 3}), JSONResponse({"text": " "})]
)
async def test_a_failing_endpoint_costs_the_transcript_only(
    place: Place, telegram: FakeTelegram, endpoint: FakeEndpoint, answer: Response
) -> None:
    telegram.files["hello"] = b"OggS hello"
    endpoint.answer = answer
    options = msgspec.structs.replace(QUICK, transcription=Transcription(url=f"{endpoint.url}/v1"))
    async with running(place, telegram, options) as app:
        telegram.write("listen", voice="hello", number=3)
        await seen(telegram, 1)

        assert await _asked(app) == [Text("listen"), "voice-3.ogg"]
    assert len(endpoint.requests) == 1


def test_the_key_of_the_endpoint_is_never_shown() -> None:
    options = telegram_options(TelegramSettings(transcription_url="http://127.0.0.1:1/v1"), "s3cret")

    assert options.transcription is not None
    assert options.transcription.key == "s3cret"
    assert "s3cret" not in repr(options)
    assert telegram_options(TelegramSettings()).transcription is None
