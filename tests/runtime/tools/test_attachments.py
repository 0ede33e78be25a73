"""Files reach agents: uploaded through a handle, carried by messages, read by the agent in any turn."""

import io
import tempfile
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import backstay
from backstay import Attachment, Limits, Text
from backstay.agents.blocking_agent import BlockingAgentTurn
from backstay.agents.port import AgentTurn
from backstay.agents.tools import Tool, ToolFailed, ToolFile
from backstay.errors import InvalidPayload, NotFound, TooLarge
from backstay.model.content import Body, ToolResult, attachments_in
from backstay.model.event import ToolReturned
from backstay.model.turn import Completed
from tests.databases import Place

LARGE = bytes(range(256)) * 10_000  # two whole pieces and a half
PHOTO = b"a photograph of a cat"


def files_of(turn: AgentTurn | BlockingAgentTurn) -> list[Attachment]:
    return [part for message in turn.messages for part in message.parts if isinstance(part, Attachment)]


async def reader(turn: AgentTurn) -> AsyncIterator[Body]:
    """Answers with the hash of every file in the conversation, read at once and in pieces."""
    for file in files_of(turn):
        pieces = [piece async for piece in turn.read_pieces(file)]
        assert max(map(len, pieces), default=0) <= 1 << 20
        assert b"".join(pieces) == await turn.read(file)
        yield Text(f"{file.name} {file.media_type} {sha256(b''.join(pieces)).hexdigest()}\n")


def blocking_reader(turn: BlockingAgentTurn) -> Iterator[Body]:
    for file in files_of(turn):
        data = b"".join(turn.read_pieces(file))
        assert data == turn.read(file)
        yield Text(f"{file.name} {file.media_type} {sha256(data).hexdigest()}\n")


def line(name: str, kind: str, data: bytes) -> str:
    return f"{name} {kind} {sha256(data).hexdigest()}\n"


async def test_an_agent_reads_the_files_of_its_input_and_of_earlier_messages(path: Place, tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(LARGE)
    async with backstay.open(path, agent=reader) as app:
        session = await app.session()
        first = await session.upload(tmp_path / "cat.png")
        await (await session.send([Text("look"), first])).outcome()
        second = await app.upload(PHOTO, name="notes.txt")
        turn = await session.send(second)

        assert await turn.outcome() == Completed()
        said = (await session.messages())[-1].text
    assert said == line("cat.png", "image/png", LARGE) + line("notes.txt", "text/plain", PHOTO)


def test_a_blocking_agent_reads_the_files_too(path: Place, tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(LARGE)
    with backstay.open_blocking(path, agent=blocking_reader) as app:
        session = app.session()
        file = session.upload(str(tmp_path / "cat.png"))

        assert session.send([Text("look"), file]).outcome() == Completed()
        assert session.messages()[-1].text == line("cat.png", "image/png", LARGE)
        assert app.download(file) == session.download(file) == LARGE


@pytest.mark.parametrize("notified", [True, False])
async def test_the_turn_after_a_restart_reads_the_files_again(path: Place, notified: bool) -> None:
    async with backstay.open(path, agent=reader, notify=notified) as app:
        session = await app.session()
        await (await session.send(await session.upload(PHOTO, name="a.bin"))).outcome()
    async with backstay.open(path, agent=reader, notify=notified) as app:
        again = await app.session(session.id)
        assert await (await again.send("and now?")).outcome() == Completed()
        assert (await again.messages())[-1].text == line("a.bin", "application/octet-stream", PHOTO)


async def test_a_file_larger_than_the_limit_is_not_read_into_memory(path: Place) -> None:
    async def careful(turn: AgentTurn) -> AsyncIterator[Body]:
        with pytest.raises(TooLarge):
            await turn.read(files_of(turn)[0], limit=len(PHOTO) - 1)
        assert await turn.read(files_of(turn)[0], limit=len(PHOTO)) == PHOTO
        yield Text("careful")

    async with backstay.open(path, agent=careful) as app:
        session = await app.session()
        file = await session.upload(PHOTO)
        # The size in a message is the sender's claim: only the stored size counts.
        claimed = Attachment(file.blob, file.name, file.media_type, 1)
        assert await (await session.send(claimed)).outcome() == Completed()
        with pytest.raises(TooLarge):
            await session.download(claimed, limit=5)


async def test_an_agent_does_not_read_files_of_another_owner(path: Place) -> None:
    async def prying(turn: AgentTurn) -> AsyncIterator[Body]:
        with pytest.raises(NotFound):
            await turn.read(theirs)
        with pytest.raises(NotFound):
            [piece async for piece in turn.read_pieces(theirs)]
        with pytest.raises(InvalidPayload):
            await turn.read("cat.png")  # type: ignore[arg-type]
        yield Text("nothing")

    async with backstay.open(path, agent=prying) as app:
        theirs = await app.owned_by("somebody else").upload(PHOTO)
        assert await (await (await app.session()).send("read")).outcome() == Completed()


async def test_equal_files_are_stored_once_and_an_open_file_is_not_closed(path: Place) -> None:
    async with backstay.open(path) as app:
        opened = io.BytesIO(PHOTO)
        one, other = await app.upload(opened, name="a.jpg"), await app.upload(PHOTO, media_type="image/x-cat")

        assert (one.blob, one.media_type) == (sha256(PHOTO).hexdigest(), "image/jpeg")
        assert other == Attachment(one.blob, "file", "image/x-cat", len(PHOTO))
        assert not opened.closed


async def test_an_empty_file_is_an_attachment(path: Place) -> None:
    async with backstay.open(path) as app:
        assert await app.download(await app.upload(b"", name="empty")) == b""


async def test_a_file_that_is_too_large_or_missing_is_refused(path: Place, tmp_path: Path) -> None:
    async with backstay.open(path, limits=Limits(blob_bytes=10, chunk_bytes=4)) as app:
        with pytest.raises(TooLarge):
            await app.upload(b"x" * 11)
        with pytest.raises(TooLarge):  # its size is not known before it is read
            await app.upload(io.BytesIO(b"x" * 11))
        with pytest.raises(FileNotFoundError):
            await app.upload(tmp_path / "none.png")
        with tempfile.NamedTemporaryFile("w+") as text:
            for wrong in (7, io.StringIO("x"), text):
                with pytest.raises(InvalidPayload, match="binary"):
                    await app.upload(wrong)  # type: ignore[arg-type]
        assert (await app.upload(b"x" * 10)).size == 10


async def draw(turn: AgentTurn) -> AsyncIterator[Body]:
    """Calls the tool that the input names, and answers with the files of all results so far."""
    if turn.input.text in TOOLS:
        try:
            yield Text(f"{await turn.call(TOOLS[turn.input.text], {})}")
        except ToolFailed as error:
            yield Text(str(error))
    for message in turn.messages:
        for file in attachments_in(message.parts):
            yield Text(f" {file.name}: {(await turn.read(file)).decode()}")


def drawing() -> ToolFile:
    return ToolFile(data=b"a line", name="line.svg", media_type="image/svg+xml")


async def album() -> dict[str, object]:
    return {"count": 2, "pages": [ToolFile(data=b"one", name="1.txt"), ToolFile(data=b"two", name="2.txt")]}


TOOLS = {
    "drawing": Tool(name="drawing", function=drawing),
    "album": Tool(name="album", function=album),
    "missing": Tool(name="missing", function=lambda: ToolFile(data="/nowhere/at/all.png")),
    "large": Tool(name="large", function=lambda: ToolFile(data=b"x" * 101, name="large.bin")),
}
LINE: dict[str, Any] = {
    "blob": sha256(b"a line").hexdigest(),
    "name": "line.svg",
    "media_type": "image/svg+xml",
    "size": 6,
}


async def test_files_that_a_tool_returns_are_attachments_of_its_result(path: Place) -> None:
    async with backstay.open(path, agent=draw) as app:
        session = await app.session()
        turn = await session.send("drawing")
        assert await turn.outcome() == Completed()
        told = [event.body.result async for event in turn.events() if isinstance(event.body, ToolReturned)]
        stored = [
            part for message in await session.messages() for part in message.parts if isinstance(part, ToolResult)
        ]
        await (await session.send("what do you have?")).outcome()
        said = (await session.messages())[-1].text

    assert told == stored == [ToolResult("ledger-1", LINE, files=(Attachment(**LINE),))]
    assert said == " line.svg: a line"


async def test_files_anywhere_in_an_output_are_kept_in_order(path: Place) -> None:
    async with backstay.open(path, agent=draw) as app:
        session = await app.session()
        await (await session.send("album")).outcome()
        (result,) = [
            part for message in await session.messages() for part in message.parts if isinstance(part, ToolResult)
        ]

    assert [file.name for file in result.files] == ["1.txt", "2.txt"]
    assert [page["name"] for page in result.output["pages"]] == ["1.txt", "2.txt"]


@pytest.mark.parametrize(("tool", "why"), [("missing", "No such file"), ("large", "at most 100")])
async def test_a_file_that_cannot_be_stored_fails_the_call_and_not_the_turn(path: Place, tool: str, why: str) -> None:
    async with backstay.open(path, agent=draw, limits=Limits(blob_bytes=100)) as app:
        session = await app.session()
        assert await (await session.send(tool)).outcome() == Completed()
        assert why in (await session.messages())[-1].text


async def test_a_session_with_files_of_tools_is_exported_and_imported(path: Place) -> None:
    async with backstay.open(path, agent=draw) as app:
        session = await app.session()
        await (await session.send("drawing")).outcome()
        document = await session.export()
        await session.delete()
        copy = await app.session((await app.import_session(document)).session.id)

        assert await app.download(Attachment(**LINE)) == b"a line"
        await (await copy.send("what do you have?")).outcome()
        assert (await copy.messages())[-1].text == " line.svg: a line"
