"""Commands, buttons and approvals in a chat, over a real store and a Bot API on loopback."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator

import msgspec
import pytest

import backstay
from backstay import Address, Text
from backstay.agents import AgentTurn, tool
from backstay.gateways.chats.command_menu import MENU
from backstay.gateways.gateway_options import GatewayOptions
from backstay.model.gateways.notice import ChatSettings
from backstay.model.session import SessionInfo
from backstay.store.commands import gateway_commands
from backstay.store.commands.gateways import notice_commands
from tests.databases import Place
from tests.gateways.fake_telegram import FakeTelegram, Seen, fake_telegram
from tests.gateways.running_gateway import QUICK, running, until

ANN, BOB, STRANGER, GROUP = 42, 43, 66, -100
TWO = GatewayOptions(allow=frozenset({"42", "43", "-100"}), quiet=0.05, retry=0.01, takeover=0.05, acknowledge=0.01)
HOME = Address.chat("telegram", "dm", chat="42", account="7")


@pytest.fixture
def telegram() -> Iterator[FakeTelegram]:
    with fake_telegram() as fake:
        yield fake


@tool(approval=True)
def remove(path: str, force: bool) -> str:
    """Remove a file, if a person allows it."""
    return f"removed {path}, force {force}"


class Gate:
    """An agent that answers when it is let go, and asks for approval where the question says so."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.runs: list[str] = []

    async def answer(self, turn: AgentTurn) -> AsyncIterator[Text]:
        question = turn.input.text
        self.runs.append(question)
        if question.startswith("rm"):
            _, name = question.split()
            yield Text(f"result: {await turn.call(remove, {'path': name, 'force': True})}")
            return
        if question.startswith("wait"):
            await self.open.wait()
        yield Text(f"you said: {question}")


async def see(telegram: FakeTelegram, beginning: str, chat: int = ANN) -> Seen:
    """Wait until a message of the bot begins like this, as the people see it."""
    await asyncio.to_thread(telegram.wait_for, lambda: telegram.sees(beginning, chat))
    return telegram.shown(beginning, chat)


async def answered(telegram: FakeTelegram, press: str) -> str:
    """Wait until a press was answered; returns what the person is told."""
    await asyncio.to_thread(telegram.wait_for, lambda: any(known == press for known, _ in telegram.answers))
    return dict(telegram.answers)[press]


async def session_of_chat(app: backstay.App) -> SessionInfo:
    return await app.at(HOME)


# --- commands -------------------------------------------------------------------------------------------------------


@pytest.mark.engines("sqlite")
async def test_the_menu_of_the_platform_offers_the_commands(place: Place, telegram: FakeTelegram) -> None:
    async with running(place, telegram):
        await asyncio.to_thread(telegram.wait_for, lambda: bool(telegram.menu))

        assert [command["command"] for command in telegram.menu] == [command.name for command in MENU]
        telegram.write("/help")
        assert "/mirror SESSION or off" in (await see(telegram, "Write to me")).text


async def test_a_chat_continues_the_session_of_a_pressed_button(place: Place, telegram: FakeTelegram) -> None:
    async with running(place, telegram) as app:
        telegram.write("first")
        await see(telegram, "you said: first")
        first = await session_of_chat(app)
        telegram.write("/new")
        await see(telegram, "A new session")
        telegram.write("second")
        await see(telegram, "you said: second")
        telegram.write("/sessions")
        listed = await see(telegram, "Which session")
        assert [label[:1] for label, _ in listed.buttons] == ["1", "2"]

        press = telegram.press(listed.number, listed.button("2"))

        assert await answered(telegram, press) == "Done."
        assert (await see(telegram, "This chat continues")).buttons == ()
        assert (await session_of_chat(app)).id == first.id
        # Pressed again, perhaps in an old client.
        assert await answered(telegram, telegram.press(listed.number, listed.button("1"))) != "Done."
        assert (await session_of_chat(app)).id == first.id


@pytest.mark.engines("sqlite")
async def test_a_chat_continues_a_session_by_letters_and_by_number(place: Place, telegram: FakeTelegram) -> None:
    async with running(place, telegram) as app:
        older = await app.session()
        await (await older.send("asked on the page")).outcome()
        telegram.write("hello")
        await see(telegram, "you said: hello")
        for name in ("2", older.id[-6:], older.id):
            telegram.write(f"/here {name}")
            await until_session(app, older.id)
            telegram.write("/new")
            await until(app, lambda: _elsewhere(app, older.id))

        for wrong, problem in (
            ("99", "there is no session 99"),
            ("zzzzzz", "no session is called"),
            ("!", "no session"),
        ):
            telegram.write(f"/here {wrong}")
            assert "/sessions" in (await see(telegram, f"⚠️ {problem}")).text


async def until_session(app: backstay.App, session: str) -> None:
    """Wait until the chat continues this session."""

    async def is_there() -> bool:
        return (await session_of_chat(app)).id == session

    await until(app, is_there)


async def _elsewhere(app: backstay.App, session: str) -> bool:
    return (await session_of_chat(app)).id != session


@pytest.mark.engines("sqlite")
async def test_a_session_of_another_owner_is_unknown(place: Place, telegram: FakeTelegram) -> None:
    async with running(place, telegram) as app:
        theirs = await app.owned_by("somebody else").session()
        for command in ("here", "mirror"):
            telegram.write(f"/{command} {theirs.id}")
            await see(telegram, "⚠️ no session is called")
        telegram.write("/sessions")
        await see(telegram, "⚠️ there is no session yet")


@pytest.mark.engines("sqlite")
async def test_people_of_a_group_do_not_reach_the_sessions_of_others(place: Place, telegram: FakeTelegram) -> None:
    options = msgspec.structs.replace(TWO, allow=frozenset({"42", "-100"}))
    async with running(place, telegram, options) as app:
        telegram.write("a secret")
        await see(telegram, "you said: a secret")
        private = await session_of_chat(app)
        for command in ("/sessions@fake_bot", f"/here@fake_bot {private.id}", f"/mirror@fake_bot {private.id[-6:]}"):
            telegram.write(command, chat=GROUP, sender=STRANGER, kind="supergroup")
        telegram.write("/status@fake_bot", chat=GROUP, sender=STRANGER, kind="supergroup")
        await see(telegram, "⚠️ this chat has no session yet", GROUP)

        assert len(telegram.texts(GROUP)) == 4
        assert all(text.startswith("⚠️") for text in telegram.texts(GROUP))


async def test_a_session_is_mirrored_in_two_chats(place: Place, telegram: FakeTelegram) -> None:
    async with running(place, telegram, TWO) as app:
        telegram.write("hello")
        await see(telegram, "you said: hello")
        session = await session_of_chat(app)
        telegram.write("mine", chat=BOB, sender=BOB)
        await see(telegram, "you said: mine", BOB)
        telegram.write(f"/mirror {session.id[-6:]}", chat=BOB, sender=BOB)
        await see(telegram, "The answers of", BOB)

        telegram.write("both see this")
        await see(telegram, "you said: both see this")
        await see(telegram, "you said: both see this", BOB)
        telegram.write("/mirror off", chat=BOB, sender=BOB)
        await see(telegram, "No longer shown here: 1", BOB)
        telegram.write("only I see this")
        await see(telegram, "you said: only I see this")
        telegram.write("still mine", chat=BOB, sender=BOB)
        await see(telegram, "you said: still mine", BOB)
        assert not telegram.sees("you said: only I see this", BOB)


@pytest.mark.engines("sqlite")
async def test_a_chat_continues_in_a_fork_and_is_summarised(place: Place, telegram: FakeTelegram) -> None:
    async with running(place, telegram) as app:
        telegram.write("hello")
        await see(telegram, "you said: hello")
        before = await session_of_chat(app)
        telegram.write("/fork")
        await see(telegram, "This chat continues in a copy")
        assert (await session_of_chat(app)).source == before.id
        telegram.write("/compact")
        await see(telegram, "⇲")
        telegram.write("/status")
        assert "idle, 0 waiting" in (await see(telegram, "<b>")).text
        telegram.write("/retry")
        await see(telegram, "Answering again.")
        await asyncio.to_thread(telegram.wait_for, lambda: telegram.texts().count("you said: hello") == 2)


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize(
    ("written", "problem", "hint"),
    [
        ("/nonsense", "there is no command /nonsense", "/help"),
        ("/agent nobody", "there is no agent 'nobody'", "default"),
        ("/busy later", "/busy does not know 'later'", "queue, steer, replace, fork"),
        ("/mirror", "/mirror needs a session", "/mirror off"),
        ("/steer", "/steer needs a text", "/busy steer"),
        ("/stop", "this chat has no session yet", "Write a message"),
        ("/approve", "this chat has no session yet", "Write a message"),
    ],
)
async def test_a_wrong_command_gets_one_line_and_what_to_do(
    place: Place, telegram: FakeTelegram, written: str, problem: str, hint: str
) -> None:
    async with running(place, telegram) as app:
        telegram.write(written)

        text = (await see(telegram, "⚠️")).text
        assert text.startswith(f"⚠️ {problem}".replace("'", "&#x27;") if "&#x27;" in text else f"⚠️ {problem}")
        assert hint in text
        assert len(text.splitlines()) == 2
        assert (await app.sessions()).sessions == ()


@pytest.mark.engines("sqlite")
async def test_texts_that_look_like_commands_are_sent(place: Place, telegram: FakeTelegram) -> None:
    async with running(place, telegram):
        telegram.write("//undo is a command")
        await see(telegram, "you said: /undo is a command")
        telegram.write("/etc/hosts is a file")
        await see(telegram, "you said: /etc/hosts is a file")


@pytest.mark.engines("sqlite")
async def test_the_agent_of_a_chat_is_chosen_by_a_button(place: Place, telegram: FakeTelegram) -> None:
    async with running(place, telegram) as app:
        telegram.write("/agent")
        listed = await see(telegram, "Which agent")
        telegram.press(listed.number, listed.button("default"))
        await see(telegram, "Messages of this chat are for the agent default.")

        destination = '{"kind":"dm","chat":"42"}'
        settings = await app.run(notice_commands.chat_settings("telegram/7", destination, owner=app.owner))
        assert settings == ChatSettings(agent="default")


@pytest.mark.engines("sqlite")
async def test_texts_in_quick_succession_become_one_turn(place: Place, telegram: FakeTelegram) -> None:
    options = msgspec.structs.replace(QUICK, gather_texts=True, quiet=1.0)
    for text in ("one", "two", "three"):
        telegram.write(text)
    async with running(place, telegram, options) as app:
        await see(telegram, "you said: ")
        assert [message.text for message in await app.handle((await session_of_chat(app)).id).messages()] == [
            "one\ntwo\nthree",
            "you said: one\ntwo\nthree",
        ]


# --- busy sessions --------------------------------------------------------------------------------------------------


async def test_a_waiting_message_is_acknowledged_and_the_state_is_edited(place: Place, telegram: FakeTelegram) -> None:
    gate = Gate()
    async with running(place, telegram, TWO, gate.answer):
        telegram.write("wait 1")
        await asyncio.to_thread(telegram.wait_for, lambda: telegram.confirmed == 1)
        telegram.write("wait 2")
        telegram.write("wait 3")
        await asyncio.to_thread(telegram.wait_for, lambda: sum(one.text.startswith("⏳") for one in telegram.seen) == 2)
        third = telegram.shown("⏳")
        telegram.press(third.number, third.button("✖"))
        await see(telegram, "✖ withdrawn")
        gate.open.set()

        await see(telegram, "✓ answered")
        await see(telegram, "you said: wait 2")
        await see(telegram, "⏹ stopped")
        assert gate.runs == ["wait 1", "wait 2"]
        assert sorted(one.text for one in telegram.seen) == [
            "you said: wait 1",
            "you said: wait 2",
            "⏹ stopped",
            "✓ answered",
            "✖ withdrawn",
        ]


@pytest.mark.engines("sqlite")
async def test_a_message_says_what_happens_while_an_answer_is_written(place: Place, telegram: FakeTelegram) -> None:
    gate = Gate()
    async with running(place, telegram, TWO, gate.answer) as app:
        telegram.write("wait 1")
        await until(app, lambda: _runs(app))
        telegram.write("/fork aside")
        await see(telegram, "you said: aside")
        assert "continues the copy" in (await see(telegram, "⑂")).text
        telegram.write("/replace instead")
        await see(telegram, "you said: instead")

        assert telegram.sees("⏹ stopped")
        telegram.write("/busy")
        listed = await see(telegram, "What happens")
        telegram.press(listed.number, listed.button("replace"))
        await see(telegram, "A message stops the running answer.")
        telegram.write("wait 2")
        await until(app, lambda: _runs(app))
        telegram.write("by setting")
        await see(telegram, "you said: by setting")
        assert len((await app.sessions()).sessions) == 2


async def _runs(app: backstay.App) -> bool:
    return any(session.running is not None for session in (await app.sessions()).sessions)


# --- approvals ------------------------------------------------------------------------------------------------------


async def test_a_tool_call_is_approved_by_a_button(place: Place, telegram: FakeTelegram) -> None:
    async with running(place, telegram, TWO, Gate().answer):
        telegram.write("rm a.txt")
        asked = await see(telegram, "🔐")
        assert "<code>remove</code>" in asked.text
        assert "path: a.txt\nforce: true" in asked.text

        press = telegram.press(asked.number, asked.button("✅"))

        assert await answered(telegram, press) == "Approved."
        await see(telegram, "result: removed a.txt")
        await asyncio.to_thread(telegram.wait_for, lambda: "✅ approved by Ann, 20" in telegram.shown("🔐").text)
        assert telegram.shown("🔐").buttons == ()
        assert await answered(telegram, telegram.press(asked.number, asked.button("🚫"))) != "Denied."
        assert sum(one.text.startswith("🔐") for one in telegram.seen) == 1


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize("decide", ["page", "command"])
async def test_a_decision_on_another_surface_is_shown_in_the_chat(
    place: Place, telegram: FakeTelegram, decide: str
) -> None:
    async with running(place, telegram, TWO, Gate().answer) as app:
        telegram.write("rm a.txt")
        asked = await see(telegram, "🔐")
        if decide == "page":
            turn = (await session_of_chat(app)).running
            assert turn is not None
            (call,) = await (await app.turn(turn)).calls()
            await (await app.turn(turn)).deny(call.call)
        else:
            telegram.write("/deny")
            await see(telegram, "🚫 denied: remove")

        await asyncio.to_thread(telegram.wait_for, lambda: "🚫 denied on another surface" in telegram.shown("🔐").text)
        assert telegram.shown("🔐").buttons == ()
        assert await answered(telegram, telegram.press(asked.number, asked.button("✅"))) != "Approved."
        assert not telegram.sees("result: removed")


@pytest.mark.engines("sqlite")
async def test_only_the_person_who_asked_or_an_approver_decides(place: Place, telegram: FakeTelegram) -> None:
    options = msgspec.structs.replace(TWO, approvers=frozenset({"99"}), allow=frozenset({"42", "43", "-100"}))
    async with running(place, telegram, options, Gate().answer) as app:
        telegram.write("/steer@fake_bot rm a.txt", chat=GROUP, sender=ANN, kind="supergroup")
        asked = await see(telegram, "🔐", GROUP)

        def press(sender: int, data: str = asked.button("✅"), chat: int = GROUP, number: int = asked.number) -> str:
            return telegram.press(number, data, chat=chat, sender=sender, kind="supergroup")

        for wrong in (
            press(BOB),
            press(STRANGER),
            press(ANN, data="approve"),
            press(ANN, data="0" * 32),
            press(ANN, chat=BOB, number=7),
        ):
            assert "Nothing was changed." in await answered(telegram, wrong)
        telegram.press(asked.number, asked.button("✅"), chat=STRANGER, sender=STRANGER)
        telegram.write("/approve@fake_bot", chat=GROUP, sender=BOB, kind="supergroup")
        await see(telegram, "⚠️ this is for the person who asked", GROUP)
        assert not telegram.sees("result", GROUP)
        assert len(telegram.answers) == 5, "a stranger is not answered"

        assert await answered(telegram, press(99)) == "Approved."
        await see(telegram, "result: removed a.txt", GROUP)
        assert (await app.run(gateway_commands.gateways(owner=app.owner)))[0].cursor


@pytest.mark.parametrize("fault", ["429", "500 before", "cut before", "500 after", "cut after"])
@pytest.mark.engines("sqlite")
async def test_a_question_arrives_whatever_fails(place: Place, telegram: FakeTelegram, fault: str) -> None:
    telegram.faults["sendMessage"] = deque([fault])  # type: ignore[list-item]  # the parameter is one
    telegram.faults["editMessageText"] = deque([fault, fault])  # type: ignore[list-item]  # as above
    telegram.faults["answerCallbackQuery"] = deque([fault])  # type: ignore[list-item]  # as above
    async with running(place, telegram, TWO, Gate().answer):
        telegram.write("rm a.txt")
        if fault.endswith("after"):
            await asyncio.to_thread(telegram.wait_for, lambda: len(telegram.seen) == 2)
            assert telegram.sees("↻"), "only a question in doubt is repeated, and it says so"
            assert telegram.seen[0].buttons == telegram.seen[1].buttons, "either decides, once"
        else:
            await asyncio.to_thread(telegram.wait_for, lambda: len(telegram.seen) == 1)
        asked = telegram.seen[0]
        telegram.press(asked.number, asked.button("✅"))

        await see(telegram, "result: removed a.txt")
        await asyncio.to_thread(telegram.wait_for, _some(telegram, "✅ approved by Ann"))


def _some(telegram: FakeTelegram, part: str) -> Callable[[], bool]:
    return lambda: any(part in one.text for one in telegram.seen)
