"""What a gateway sends to Telegram: formatting, tools, files, and chats that moved or are gone."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator

import pytest

from backstay import (
    Address,
    App,
    Attachment,
    Body,
    NewMessage,
    SessionId,
    Text,
    Thought,
    ToolCall,
    ToolResult,
)
from backstay.agents import AgentTurn
from backstay.gateways.telegram.telegram_platform import TelegramPlatform
from backstay.model.gateways.delivery import Delivery
from backstay.model.message import assistant
from backstay.store.commands import gateway_commands
from tests.databases import Place
from tests.gateways.fake_telegram import FakeTelegram, fake_telegram
from tests.gateways.running_gateway import running, seen, until

PNG = b"\x89PNG a picture"
DM = Address.chat("telegram", "dm", chat="42", account="7")


@pytest.fixture
def telegram() -> Iterator[FakeTelegram]:
    with fake_telegram() as fake:
        yield fake


@pytest.mark.engines("sqlite")
async def test_files_of_an_agent_are_sent_as_what_they_are(place: Place, telegram: FakeTelegram) -> None:
    files = [
        ("cat.png", "image/png", PNG, "photo"),
        ("wide.png", "image/png", b"too wide for a photo", "document"),
        ("hello.ogg", "audio/ogg", b"a voice", "voice"),
        ("song.mp3", "audio/mpeg", b"a song", "audio"),
        ("report.pdf", "application/pdf", b"%PDF", "document"),
    ]
    async with running(place, telegram) as app:
        attachments = [await app.upload(data, name=name, media_type=media_type) for name, media_type, data, _ in files]
        telegram.write("hello")
        await seen(telegram, 1)
        session = await app.session(DM)
        # Tools return files as well. What both the tool and the agent have is sent once.
        await session.record([*_with_files(attachments)])

        await seen(telegram, 2 + len(files))

    assert telegram.texts()[1] == "Here they are.\n\n⚙️ <code>draw</code>"
    assert [one.file for one in telegram.seen if one.file] == [(kind, name, data) for name, _, data, kind in files]


def _with_files(attachments: list[Attachment]) -> Iterator[NewMessage]:
    yield assistant([ToolCall("c1", "draw")])
    yield NewMessage(role="tool", parts=(ToolResult("c1", "done", files=tuple(attachments[:2])),))
    yield assistant([Text("Here they are."), *attachments])


class SmallFiles(TelegramPlatform):
    """A platform that takes only small files."""

    most_file_bytes = 20


@pytest.mark.engines("sqlite")
async def test_a_file_that_is_too_large_is_named(place: Place, telegram: FakeTelegram) -> None:
    async with running(place, telegram, platform=SmallFiles) as app:
        telegram.write("hello")
        await seen(telegram, 1)
        files = [await app.upload(bytes(size), name=f"f{size}.bin", media_type="x/y") for size in (0, 20, 21)]
        await (await app.session(DM)).record([assistant([Text("Files."), *files])])

        await seen(telegram, 3)

    _, text, sent = telegram.seen
    assert text.text == "Files.\n\n📎 <code>f21.bin</code> (21 bytes) is too large for this chat. It is in the session."
    assert sent.file == ("document", "f20.bin", bytes(20))


@pytest.mark.engines("sqlite")
async def test_a_file_that_may_have_arrived_is_sent_again_with_a_mark(place: Place, telegram: FakeTelegram) -> None:
    telegram.faults["sendPhoto"] = deque(["500 after"])
    async with running(place, telegram) as app:
        telegram.write("hello")
        await seen(telegram, 1)
        picture = await app.upload(PNG, name="cat.png", media_type="image/png")
        await (await app.session(DM)).record([assistant([picture])])

        await seen(telegram, 3)

    assert [bool(one.text) for one in telegram.seen if one.file] == [False, True]


async def test_a_chat_that_blocked_the_bot_is_left_alone_until_it_writes(place: Place, telegram: FakeTelegram) -> None:
    telegram.blocked.add(42)
    async with running(place, telegram) as app:
        telegram.write("hello")
        await until(app, lambda: _stopped(app))
        session = await app.session(DM)
        await (await session.send("from the page")).outcome()
        telegram.blocked.clear()
        telegram.write("again")

        assert await seen(telegram, 1) == ["you said: again"]
        assert [text for method, _, text in telegram.calls if method == "sendMessage"] == [
            "you said: hello",
            "you said: again",
        ]
        assert not await _stopped(app)


async def _stopped(app: App) -> bool:
    found = [delivery for info in (await app.sessions()).sessions for delivery in await _deliveries(app, info.id)]
    return any(delivery.stopped == "Forbidden: bot was blocked by the user" for delivery in found)


async def _deliveries(app: App, session: SessionId) -> tuple[Delivery, ...]:
    return await app.run(gateway_commands.deliveries_of(session, owner="local"))


async def test_a_group_keeps_its_session_when_it_becomes_a_supergroup(place: Place, telegram: FakeTelegram) -> None:
    async with running(place, telegram) as app:
        telegram.write("hey @fake_bot", chat=-5, kind="group")
        await seen(telegram, 1, chat=-5)
        (before,) = (await app.sessions()).sessions
        # The bot may hear of it when it sends, before the update that says so arrives.
        telegram.migrated[-5] = -1005
        await app.handle(before.id).send("from the page")
        assert await seen(telegram, 1, chat=-1005) == ["you said: from the page"]
        telegram.become_supergroup(-5, -1005)
        telegram.write("still there, @fake_bot?", chat=-1005, kind="supergroup")

        assert (await seen(telegram, 2, chat=-1005))[1] == "you said: still there, @fake_bot?"
        assert [info.id for info in (await app.sessions()).sessions] == [before.id]
        assert len(await _deliveries(app, before.id)) == 1


@pytest.mark.engines("sqlite")
async def test_a_supergroup_that_only_an_update_names_keeps_its_session(place: Place, telegram: FakeTelegram) -> None:
    async with running(place, telegram) as app:
        telegram.write("hey @fake_bot", chat=-5, kind="group")
        await seen(telegram, 1, chat=-5)
        telegram.become_supergroup(-5, -1005)
        telegram.write("still there, @fake_bot?", chat=-1005, kind="supergroup")

        assert await seen(telegram, 1, chat=-1005) == ["you said: still there, @fake_bot?"]
        assert len((await app.sessions()).sessions) == 1


@pytest.mark.engines("sqlite")
async def test_a_lost_topic_is_named_once_and_then_the_chat_is_used(place: Place, telegram: FakeTelegram) -> None:
    async with running(place, telegram) as app:
        telegram.write("hey @fake_bot", chat=-100, kind="supergroup", thread=5)
        await seen(telegram, 1, chat=-100)
        telegram.dead_threads.add(5)
        (info,) = (await app.sessions()).sessions
        await app.handle(info.id).send("one **bold** word")
        await app.handle(info.id).send("two")

        texts = (await seen(telegram, 3, chat=-100))[1:]
        assert texts == ["(the topic is gone)\nyou said: one <b>bold</b> word", "you said: two"]
        assert [one.thread for one in telegram.seen] == [5, None, None]


@pytest.mark.engines("sqlite")
async def test_the_general_topic_has_no_id(place: Place, telegram: FakeTelegram) -> None:
    async with running(place, telegram):
        telegram.write("hey @fake_bot", chat=-100, kind="supergroup", thread=1)

        assert await seen(telegram, 1, chat=-100) == ["you said: hey @fake_bot"]
        assert telegram.seen[0].thread is None


@pytest.mark.engines("sqlite")
async def test_thoughts_are_not_sent_and_tools_are_one_line(place: Place, telegram: FakeTelegram) -> None:
    async def busy(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Thought("a secret plan")
        yield Text("Looking.")
        for number in range(3):
            yield ToolCall(f"c{number}", "read_file" if number else "search`x")
            yield ToolResult(f"c{number}", "contents", error=number == 2)
        yield Text("Found it.")

    async with running(place, telegram, agent=busy):
        telegram.write("hello")

        assert await seen(telegram, 1) == [
            "Looking.\n\nFound it.\n\n⚙️ <code>search'x</code>, <code>read_file</code> ×2 · 1 failed"
        ]


@pytest.mark.engines("sqlite")
async def test_a_revoked_token_gives_nothing_up(place: Place, telegram: FakeTelegram) -> None:
    telegram.faults["sendMessage"] = deque(["401", "401"])
    async with running(place, telegram):
        telegram.write("hello")

        assert await seen(telegram, 1) == ["you said: hello"]


@pytest.mark.engines("sqlite")
async def test_an_interrupted_answer_has_one_notice_that_is_edited(place: Place, telegram: FakeTelegram) -> None:
    writes = [True, False, False, True]

    async def broken_off(turn: AgentTurn) -> AsyncIterator[Body]:
        if writes.pop(0):
            yield Text("So far.")
        if writes:
            asyncio.get_running_loop().call_soon(started.set)
            await asyncio.Event().wait()

    for notices in (0, 1, 1):
        started = asyncio.Event()
        async with running(place, telegram, agent=broken_off, on_interrupt="resume"):
            if not notices:
                telegram.write("hello")
            await asyncio.to_thread(telegram.wait_for, lambda count=notices: len(telegram.seen) >= count)  # type: ignore[misc]  # bound now
            await started.wait()
        assert len(telegram.seen) == notices
    async with running(place, telegram, agent=broken_off, on_interrupt="resume"):
        await asyncio.to_thread(telegram.wait_for, lambda: telegram.sees("So far.\n\n⚠️ interrupted, and continued"))

    assert telegram.texts() == ["So far.\n\n⚠️ interrupted, and continued below", "So far."]
