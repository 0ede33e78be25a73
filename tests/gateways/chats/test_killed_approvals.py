"""Gateways are killed while they ask for approvals: each call is decided once, and the chat shows it in the end."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator

import backstay
from backstay import Text
from backstay.agents import AgentTurn, tool
from backstay.store.commands.gateways import notice_commands
from tests.databases import Place
from tests.gateways.chats.approval_program import STEPS
from tests.gateways.fake_telegram import FakeTelegram, fake_telegram

PERSON = 42
# The process died between the sending of the question and its receipt: nobody knows whether it had arrived.
REPEATED = {"asked": 2}


async def test_a_gateway_that_is_killed_while_it_asks_decides_once(place: Place) -> None:
    removed: list[str] = []

    @tool(approval=True)
    def remove(path: str) -> str:
        """Remove a file, if a person allows it."""
        removed.append(path)
        return path

    async def agent(turn: AgentTurn) -> AsyncIterator[Text]:
        yield Text(f"removed {await turn.call(remove, {'path': turn.input.text})}")

    with fake_telegram() as telegram:
        # The agent lives elsewhere: only the gateway dies.
        async with backstay.open(place, agent=agent) as app:
            for chat, step in enumerate(STEPS, 100):
                dying = await _gateway(place, telegram, step)
                telegram.write(step, chat=chat, sender=PERSON)
                if step not in ("ask", "asked"):
                    await _press(telegram, chat)
                assert await asyncio.wait_for(dying.wait(), 120) == -signal.SIGKILL
                following = await _gateway(place, telegram)
                try:
                    if step in ("ask", "asked"):
                        await _questions(telegram, chat, REPEATED.get(step, 1))
                        await _press(telegram, chat)
                    await _settled(telegram, chat)
                    async with asyncio.timeout(120):
                        while not await _has_receipts(app):  # noqa: ASYNC110  # another process writes them
                            await asyncio.sleep(0.01)
                finally:
                    following.kill()
                    await following.wait()

        asked = {step: _count(telegram, chat) for chat, step in enumerate(STEPS, 100)}

    assert removed == list(STEPS)
    assert asked == dict.fromkeys(STEPS, 1) | REPEATED


async def _gateway(place: Place, telegram: FakeTelegram, *step: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests.gateways.chats.approval_program",
            str(place),
            telegram.url,
            *step,
        ),
        stderr=asyncio.subprocess.DEVNULL,
    )


async def _press(telegram: FakeTelegram, chat: int) -> None:
    """The person approves, under the first message that asks."""
    await _questions(telegram, chat, 1)
    asked = next(one for one in telegram.seen if one.chat == chat and "🔐" in one.text)
    telegram.press(asked.number, asked.button("✅"), chat=chat, sender=PERSON)


async def _questions(telegram: FakeTelegram, chat: int, count: int) -> None:
    await asyncio.to_thread(telegram.wait_for, lambda: _count(telegram, chat) >= count, 120)


async def _settled(telegram: FakeTelegram, chat: int) -> None:
    await asyncio.to_thread(telegram.wait_for, lambda: _is_settled(telegram, chat), 120)


async def _has_receipts(app: backstay.App) -> bool:
    """Whether the store knows that the chats show every notice: the next process finds nothing to do."""
    due = await app.run(notice_commands.due_notices("telegram/7", owner=app.owner))
    watched = await app.run(notice_commands.watched_notices("telegram/7", owner=app.owner))
    return not due and not watched


def _count(telegram: FakeTelegram, chat: int) -> int:
    return sum("🔐" in text for text in telegram.texts(chat))


def _is_settled(telegram: FakeTelegram, chat: int) -> bool:
    """Whether the chat shows the answer, and who decided."""
    texts = telegram.texts(chat)
    return any("removed" in text for text in texts) and any("✅ approved by Ann" in text for text in texts)
