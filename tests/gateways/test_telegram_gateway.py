"""The gateway to Telegram, over a real store and a Bot API on loopback."""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

import backstay
from backstay import Address
from backstay.gateways.gateway_runner import Gateway
from backstay.gateways.platform import SendRefused
from backstay.gateways.telegram.telegram_platform import TelegramPlatform
from tests.databases import Place
from tests.gateways.fake_telegram import FakeTelegram, fake_telegram
from tests.gateways.running_gateway import QUICK, echo, running, seen


@pytest.fixture
def telegram() -> Iterator[FakeTelegram]:
    with fake_telegram() as fake:
        yield fake


async def test_a_message_is_answered(place: Place, telegram: FakeTelegram) -> None:
    async with running(place, telegram) as app:
        telegram.write("hello")

        assert await seen(telegram, 1) == ["you said: hello"]
        session = await app.session(Address.chat("telegram", "dm", chat="42", account="7"))
        assert [message.text for message in await session.messages()] == ["hello", "you said: hello"]


async def test_an_answer_on_another_surface_is_shown_in_the_chat(place: Place, telegram: FakeTelegram) -> None:
    async with running(place, telegram) as app:
        telegram.write("hello")
        await seen(telegram, 1)
        session = await app.session(Address.chat("telegram", "dm", chat="42", account="7"))
        await session.send("from the page")

        assert await seen(telegram, 2) == ["you said: hello", "you said: from the page"]


async def test_messages_that_arrived_during_downtime_are_answered_in_order(
    place: Place, telegram: FakeTelegram
) -> None:
    async with running(place, telegram):
        telegram.write("one")
        await seen(telegram, 1)
    for text in ("two", "three", "four"):
        telegram.write(text)

    async with running(place, telegram):
        assert await seen(telegram, 4) == [f"you said: {text}" for text in ("one", "two", "three", "four")]


async def test_an_update_is_confirmed_after_it_is_stored(place: Place, telegram: FakeTelegram) -> None:
    telegram.faults["getUpdates"] = deque(["cut after", "500 after", "repeat", "repeat"])
    async with running(place, telegram):
        telegram.write("hello")
        await seen(telegram, 1)
        await asyncio.to_thread(telegram.wait_for, lambda: telegram.confirmed == 1)

        telegram.write("again")
        assert await seen(telegram, 2) == ["you said: hello", "you said: again"]


async def test_strangers_learn_nothing(place: Place, telegram: FakeTelegram) -> None:
    async with running(place, telegram) as app:
        telegram.write("let me in", chat=66, sender=66)
        telegram.write("/start", chat=66, sender=66)
        telegram.write("hello")
        await seen(telegram, 1)

        assert telegram.texts(66) == []
        assert len((await app.sessions()).sessions) == 1


async def test_a_group_is_answered_when_the_bot_is_named(place: Place, telegram: FakeTelegram) -> None:
    async with running(place, telegram):
        telegram.write("nobody asked", chat=-100, kind="supergroup")
        telegram.write("hey @Fake_Bot", chat=-100, kind="supergroup", thread=5)

        assert await seen(telegram, 1, chat=-100) == ["you said: hey @Fake_Bot"]
        assert telegram.seen[0].thread == 5


async def test_an_answer_to_a_deleted_topic_goes_to_the_chat(place: Place, telegram: FakeTelegram) -> None:
    telegram.dead_threads.add(5)
    async with running(place, telegram):
        telegram.write("hey @fake_bot", chat=-100, kind="supergroup", thread=5)

        (text,) = await seen(telegram, 1, chat=-100)
        assert text == "(the topic is gone)\nyou said: hey @fake_bot"


async def test_an_album_is_one_turn_in_its_order(place: Place, telegram: FakeTelegram) -> None:
    telegram.files |= {"cat": b"a cat", "dog": b"a dog"}
    telegram.faults["file"] = deque(["500 before"])
    async with running(place, telegram) as app:
        telegram.write("", album="a1", photo="dog", number=12)
        telegram.write("which is it?", album="a1", photo="cat", number=11)

        assert await seen(telegram, 1) == ["you said: which is it?"]
        session = await app.session(Address.chat("telegram", "dm", chat="42", account="7"))
        asked = (await session.messages())[0]
        assert [getattr(part, "name", None) for part in asked.parts] == [None, "photo-11.jpg", "photo-12.jpg"]


async def test_a_file_that_cannot_be_fetched_is_named(place: Place, telegram: FakeTelegram) -> None:
    async with running(place, telegram):
        telegram.write("look", photo="huge", number=3)

        assert await seen(telegram, 1) == ["you said: look\n[photo-3.jpg could not be fetched: File is too big]"]


async def test_a_gathering_of_a_stopped_gateway_is_continued(place: Place, telegram: FakeTelegram) -> None:
    telegram.files["cat"] = b"a cat"
    telegram.faults["getFile"] = deque(["500 before"] * 100)
    async with running(place, telegram) as app:
        telegram.write("look", photo="cat", number=3)
        await asyncio.to_thread(telegram.wait_for, lambda: telegram.confirmed == 1)
        (session,) = (await app.sessions()).sessions
        assert session.held == 1
    telegram.faults.clear()

    async with running(place, telegram):
        assert await seen(telegram, 1) == ["you said: look"]


@pytest.mark.parametrize("fault", ["429", "500 before", "cut before"])
async def test_an_answer_is_sent_again_until_it_arrives(place: Place, telegram: FakeTelegram, fault: str) -> None:
    telegram.faults["sendMessage"] = deque([fault] * 3)  # type: ignore[list-item]  # the parameter is one
    async with running(place, telegram):
        telegram.write("hello")

        (text,) = await seen(telegram, 1)
        assert text.endswith("you said: hello")
        assert text.startswith("↻") == (fault != "429"), "only a part in doubt is marked"


@pytest.mark.parametrize("fault", ["500 after", "cut after"])
async def test_an_answer_that_may_have_arrived_is_sent_again_with_a_mark(
    place: Place, telegram: FakeTelegram, fault: str
) -> None:
    telegram.faults["sendMessage"] = deque([fault])  # type: ignore[list-item]  # the parameter is one
    async with running(place, telegram):
        telegram.write("hello")

        first, second = await seen(telegram, 2)
        assert first == "you said: hello"
        assert second.startswith("↻")
        assert second.endswith("you said: hello")


async def test_html_that_telegram_refuses_is_sent_as_text(place: Place, telegram: FakeTelegram) -> None:
    telegram.faults["sendMessage"] = deque(["400"])
    async with running(place, telegram):
        telegram.write("**hello**")

        assert await seen(telegram, 1) == ["you said: **hello**"]


async def test_a_long_answer_arrives_in_parts(place: Place, telegram: FakeTelegram) -> None:
    async with running(place, telegram):
        telegram.faults["sendMessage"] = deque(["429"])
        telegram.write("word " * 900)

        parts = await seen(telegram, 2)
        assert "".join(parts) == ("you said: " + "word " * 900).strip()


async def test_commands_change_the_session_of_the_chat(place: Place, telegram: FakeTelegram) -> None:
    async with running(place, telegram) as app:
        telegram.write("one")
        await seen(telegram, 1)
        telegram.write("/undo")
        assert (await seen(telegram, 2))[1].startswith("The last turn is undone")
        (session,) = (await app.sessions()).sessions
        assert await app.handle(session.id).messages() == ()
        telegram.write("/redo")
        await seen(telegram, 3)
        telegram.write("/new")
        await seen(telegram, 4)
        telegram.write("two")
        assert (await seen(telegram, 5))[4] == "you said: two"
        assert len((await app.sessions()).sessions) == 2
        telegram.write("/undo@fake_bot")
        await seen(telegram, 6)
        telegram.write("/undo")
        assert (await seen(telegram, 7))[6].startswith("⚠️")


async def test_a_second_process_takes_over(place: Place, telegram: FakeTelegram) -> None:
    async with AsyncExitStack() as first, running(place, telegram):
        await first.enter_async_context(running(place, telegram))
        telegram.write("one")
        await seen(telegram, 1)
        await first.aclose()
        telegram.write("two")

        assert await seen(telegram, 2) == ["you said: one", "you said: two"]


async def test_a_wrong_token_is_refused(place: Place, telegram: FakeTelegram) -> None:
    async with backstay.open(place, agent=echo) as app, TelegramPlatform("7:wrong", server=telegram.url) as platform:
        with pytest.raises(SendRefused):
            await Gateway(app, platform, QUICK).run()


@pytest.mark.parametrize("seed", range(3))
async def test_every_message_is_answered_once_whatever_fails(place: Place, seed: int) -> None:
    with fake_telegram(seed=seed, chance=0.3) as telegram:
        async with running(place, telegram):
            for number in range(20):
                telegram.write(f"message {number}")
            await asyncio.to_thread(
                telegram.wait_for,
                lambda: (
                    {f"you said: message {number}" for number in range(20)}
                    <= {_unmarked(one.text) for one in telegram.seen}
                ),
            )

        plain = [text for text in telegram.texts() if not text.startswith("↻")]
        assert len(plain) == len(set(plain)), "only a marked part repeats another one"


def _unmarked(text: str) -> str:
    return text.rpartition("\n")[2]


@pytest.mark.engines("sqlite")
async def test_nonsense_does_not_stop_the_poller(place: Place, telegram: FakeTelegram) -> None:
    person, chat = {"id": 42, "first_name": "Ann"}, {"id": 42, "type": "private"}
    good = {"message_id": 9, "chat": chat, "from": person, "text": "x"}
    async with running(place, telegram):
        for wrong in (
            {},
            {"message": None},
            {"message": "text"},
            {"message": good | {"text": 5}},
            {"message": good | {"text": "\ud800", "message_id": 10}},
            {"message": good | {"text": "\0", "message_id": 11}},
            {"message": good | {"message_id": 1 << 70}},
            {"message": good | {"chat": {"id": "42", "type": "private"}}},
            {"message": good | {"text": "", "document": {"file_id": "f\0", "file_name": "\ud800" * 500}}},
            {"callback_query": {"id": "1", "from": person, "data": "\ud800", "message": {"message_id": 1}}},
            {"edited_message": good},
        ):
            telegram.add_update(wrong)
        telegram.write("hello")

        await asyncio.to_thread(telegram.wait_for, lambda: telegram.sees("you said: hello"))
