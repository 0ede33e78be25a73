"""Previews: a chat shows an answer while it is written. They are disposable, and none stays."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest

from backstay import Body, Text, Thought, ToolCall, ToolResult
from backstay.agents import AgentTurn
from backstay.gateways.outbox.preview_text import PreviewText
from backstay.gateways.outbox.text_limits import units
from backstay.gateways.platform import ChatPlace, PreviewPace
from backstay.gateways.telegram.telegram_platform import TelegramPlatform
from backstay.model.event import EventBody, TextDelta, ThoughtDelta, ToolCalled, ToolReturned
from tests.databases import Place
from tests.gateways.fake_telegram import FakeTelegram, fake_telegram
from tests.gateways.running_gateway import QUICK, running, seen

SHOWN = msgspec.structs.replace(QUICK, preview_seconds=0.01)
pytestmark = pytest.mark.engines("sqlite")


@pytest.fixture
def telegram() -> Iterator[FakeTelegram]:
    with fake_telegram() as fake:
        yield fake


class Slow:
    """An agent that writes, uses a tool, and waits until it may go on."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        yield Thought("a secret plan")
        yield Text("Let me look.")
        yield ToolCall("c1", "search")
        await self.go_on.wait()
        yield ToolResult("c1", "found")
        yield Text("Here it is.")

    async def aclose(self) -> None:
        """Nothing is open."""


async def _wait(telegram: FakeTelegram, text: str, chat: int = 42) -> None:
    """Wait until people see a draft or a message with this text."""

    def shown() -> bool:
        return text in telegram.drafts.get(chat, "") or any(text in found for found in telegram.texts(chat))

    await asyncio.to_thread(telegram.wait_for, shown)


FINAL = "Let me look.\n\nHere it is.\n\n⚙️ <code>search</code>"


async def test_a_private_chat_shows_a_draft_until_the_answer_arrives(place: Place, telegram: FakeTelegram) -> None:
    agent = Slow()
    async with running(place, telegram, SHOWN, agent):
        telegram.write("hello")
        await _wait(telegram, "<code>search</code> …")
        assert telegram.drafts[42].startswith("Let me look.")
        assert telegram.seen == []
        agent.go_on.set()

        assert await seen(telegram, 1) == [FINAL]
    assert telegram.drafts == {}
    assert not any("secret" in text for _, _, text in telegram.calls)


async def test_a_group_shows_a_silent_message_that_the_answer_replaces(place: Place, telegram: FakeTelegram) -> None:
    agent = Slow()
    async with running(place, telegram, SHOWN, agent):
        telegram.write("hey @fake_bot", chat=-100, kind="supergroup", thread=5)
        await _wait(telegram, "<code>search</code> …", chat=-100)
        (preview,) = telegram.seen
        assert (preview.silent, preview.thread) == (True, 5)
        agent.go_on.set()

        await asyncio.to_thread(telegram.wait_for, lambda: telegram.texts(-100) == [FINAL])
        assert not telegram.seen[0].silent


class QuickDrafts(TelegramPlatform):
    """Drafts disappear at once."""

    def pace(self, place: ChatPlace) -> PreviewPace:
        return PreviewPace(seconds=0.01, lasts=0.05)


async def test_a_draft_that_disappears_during_a_tool_call_is_shown_again(place: Place, telegram: FakeTelegram) -> None:
    agent = Slow()
    async with running(place, telegram, SHOWN, agent, platform=QuickDrafts):
        telegram.write("hello")
        await _wait(telegram, "<code>search</code> …")
        telegram.drop_drafts()

        await _wait(telegram, "<code>search</code> …")
        agent.go_on.set()
        await seen(telegram, 1)


async def test_a_chat_that_asks_to_wait_is_left_alone_and_still_gets_the_answer(
    place: Place, telegram: FakeTelegram
) -> None:
    telegram.faults["sendMessageDraft"] = deque(["429"])
    agent = Slow()
    async with running(place, telegram, SHOWN, agent):
        telegram.write("hello")
        await asyncio.to_thread(telegram.wait_for, lambda: len(telegram.calls) == 1)
        agent.go_on.set()
        await seen(telegram, 1)

    times = [at for at, (method, _, _) in zip(telegram.times, telegram.calls, strict=True) if "Draft" in method]
    assert all(at - times[0] >= 1.0 for at in times[1:])


async def test_a_preview_is_paused_as_long_as_the_chat_asks(place: Place, telegram: FakeTelegram) -> None:
    telegram.faults["sendMessageDraft"] = deque(["429"])
    agent = Slow()
    async with running(place, telegram, SHOWN, agent):
        telegram.write("hello")
        await _wait(telegram, "<code>search</code> …")
        agent.go_on.set()
        await seen(telegram, 1)

    assert telegram.times[1] - telegram.times[0] >= 1.0


@pytest.mark.parametrize("fault", ["500 before", "cut after", "429"])
async def test_a_preview_that_fails_costs_no_answer(place: Place, telegram: FakeTelegram, fault: str) -> None:
    telegram.faults["sendMessageDraft"] = deque([fault] * 1000)  # type: ignore[list-item]  # the parameter is one
    agent = Slow()
    async with running(place, telegram, SHOWN, agent):
        telegram.write("hello")
        await asyncio.to_thread(telegram.wait_for, lambda: len(telegram.calls) >= 1)
        agent.go_on.set()

        assert await seen(telegram, 1) == [FINAL]


async def test_the_next_poller_removes_the_preview_of_the_last_one(place: Place, telegram: FakeTelegram) -> None:
    async with running(place, telegram, SHOWN, Slow()):
        telegram.write("hey @fake_bot", chat=-100, kind="supergroup")
        await _wait(telegram, "<code>search</code> …", chat=-100)
        (preview,) = telegram.seen

    async with running(place, telegram, SHOWN, Slow()):
        await asyncio.to_thread(telegram.wait_for, lambda: preview.number not in [one.number for one in telegram.seen])
        await _wait(telegram, "interrupted", chat=-100)
    assert len(telegram.seen) == 1


async def test_previews_can_be_switched_off(place: Place, telegram: FakeTelegram) -> None:
    agent = Slow()
    agent.go_on.set()
    async with running(place, telegram, msgspec.structs.replace(SHOWN, previews=False), agent):
        telegram.write("hello")
        await seen(telegram, 1)

    assert [method for method, _, _ in telegram.calls] == ["sendMessage"]


# --- the text of a preview ------------------------------------------------------------------------------------------

LOOK = ToolCalled(ToolCall("c1", "look"), "k1")
DONE = ToolReturned(ToolResult("c1", "done"))


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([], "💭 …"),
        ([ThoughtDelta("hm")], "💭 …"),
        ([TextDelta("Hel"), TextDelta("lo")], "Hello"),
        ([LOOK], "⚙️ `look` …"),
        ([TextDelta("Hm."), LOOK], "Hm.\n\n⚙️ `look` …"),
        ([TextDelta("Hm."), LOOK, DONE, TextDelta("Oh.")], "Hm.\n\nOh."),
        ([LOOK, DONE, ToolCalled(ToolCall("c2", "run"), "k2")], "⚙️ `run` … (1 done)"),
        (
            [ToolCalled(ToolCall(f"c{number}", f"t{number}"), f"k{number}") for number in range(5)],
            "⚙️ `t0`, `t1`, `t2` and 2 more …",
        ),
    ],
)
def test_a_preview_shows_the_text_so_far_and_the_tools_that_run(events: list[EventBody], text: str) -> None:
    preview = PreviewText()
    for event in events:
        preview.add(event)
    assert preview.shown(1000) == text


def test_a_long_preview_shows_its_end_in_the_same_code_block() -> None:
    preview = PreviewText()
    preview.add(TextDelta("Begin\n```python\n"))
    for number in range(20_000):
        preview.add(TextDelta(f"line {number} 🦆\n"))
    preview.add(LOOK)

    shown = preview.shown(4096)

    assert units(shown) <= 4096
    assert shown.startswith("…\n```python\nline ")
    assert "line 19999 🦆" in shown
    assert shown.endswith("⚙️ `look` …")
