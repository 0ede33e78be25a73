"""An ACP agent in durable sessions: the agent has its own memory, and the store is authoritative."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import backstay
from backstay import Address, App, open_store
from backstay.agents.acp import AcpAgent
from backstay.model import message
from backstay.model.content import ToolCall, ToolResult
from backstay.model.event import ToolCalled, TurnEnded
from backstay.model.turn import Cancelled, Completed, Failed
from backstay.runtime.session_handle import Session
from backstay.runtime.turn_handle import Turn
from tests.agents.acp.test_acp import PROGRAM, alive
from tests.databases import Place
from tests.runtime.controlled_agents import events_of_turn, first_words, until

# These tests are about the process of an agent: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")


@asynccontextmanager
async def app_with(place: Place, cwd: Path, **choices: Any) -> AsyncIterator[App]:
    """An app in which the program answers."""
    agent = backstay.live(partial(AcpAgent, PROGRAM, cwd=cwd, **choices))
    async with backstay.open(place, agent=agent) as app:
        yield app


async def answered(session: Session, wish: str) -> Turn:
    turn = await session.send(wish)
    assert await turn.outcome() == Completed()
    return turn


async def roles_and_texts(session: Session) -> Any:
    """The reported state of the program: its process, and all of its prompts."""
    await answered(session, "tell the prompt")
    return json.loads((await session.messages())[-1].text)


async def asked(turn: Turn) -> str:
    """The question that the turn waits with."""
    async for event in turn.events():
        if isinstance(event.body, ToolCalled) and event.body.call.name == "permission":
            return event.body.call.id
    raise AssertionError("nobody was asked")


async def ending(turn: Turn) -> TurnEnded:
    return next(event.body for event in await events_of_turn(turn) if isinstance(event.body, TurnEnded))


async def test_a_process_is_kept_between_the_turns_of_a_session_and_its_output_is_stored(
    place: Place, tmp_path: Path
) -> None:
    async with app_with(place, tmp_path) as app:
        session, other = await app.session(), await app.session()
        first = await roles_and_texts(session)
        await answered(session, "use a tool")
        second, elsewhere = await roles_and_texts(session), await roles_and_texts(other)

        assert second["pid"] == first["pid"] != elsewhere["pid"]
        assert second["prompts"] == [["tell the prompt"], ["use a tool"], ["tell the prompt"]]
        assert app.pool.statistics.built == {"first": 2}
        call, result, done = (await session.messages())[3:6]
        assert call.parts == (ToolCall("acp-1", "edit", {"title": "Write a.txt", "input": {"n": 1}}),)
        assert (result.role, result.parts) == ("tool", (ToolResult("acp-1", "written"),))
        assert done.text == "done "
        app.pool.trim()
        await until(lambda: not alive(first["pid"]))
    assert not alive(elsewhere["pid"])


async def test_after_an_undo_another_process_gets_the_remaining_messages(place: Place, tmp_path: Path) -> None:
    async with app_with(place, tmp_path) as app:
        session = await app.session()
        await answered(session, "say stays")
        first = await roles_and_texts(session)
        await session.undo()
        second = await roles_and_texts(session)

        assert second["pid"] != first["pid"]
        ((earlier, now),) = second["prompts"]
        assert now == "tell the prompt"
        assert [line for line in earlier.splitlines() if line.startswith("    ")] == ["    say stays", "    stays "]
        assert app.pool.statistics.built == {"first": 1, "undo": 1}
        await until(lambda: not alive(first["pid"]))


async def test_another_app_gives_its_own_process_the_whole_window(place: Place, tmp_path: Path) -> None:
    async with app_with(place, tmp_path) as app:
        session = await app.session()
        await answered(session, "say this was before")
    async with app_with(place, tmp_path) as app:
        ((earlier, now),) = (await roles_and_texts(await app.session(session.id)))["prompts"]

    assert "    this was before " in earlier.splitlines()
    assert now == "tell the prompt"


async def test_the_running_process_gets_the_messages_that_others_add(place: Place, tmp_path: Path) -> None:
    async with app_with(place, tmp_path) as app:
        session = await app.session()
        first = await roles_and_texts(session)
        await session.record([message.user("by the way"), message.assistant("yes?")])
        second = await roles_and_texts(session)

        assert second["pid"] == first["pid"]
        assert "    by the way" in second["prompts"][1][0].splitlines()
        assert app.pool.statistics.caught_up == 1


async def test_a_session_of_a_directory_is_answered_there(place: Place, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()

    async with app_with(place, tmp_path) as app:
        session = await app.session(Address.workspace(project, scope="main"))
        await answered(session, "tell where")
        assert json.loads((await session.messages())[-1].text)["process"] == str(project)
        # Two directories point to this session now: neither takes precedence.
        with open_store(place) as store:
            store.point(Address.workspace(tmp_path / "other", scope="main"), session.id, owner="local")
        await session.undo()
        await answered(session, "tell where")
        assert json.loads((await session.messages())[-1].text)["process"] == str(tmp_path)
        # And a directory of another machine does not count here.
        far = await app.session(Address.workspace(project, scope="main", host="elsewhere"))
        await answered(far, "tell where")
        assert json.loads((await far.messages())[-1].text)["process"] == str(tmp_path)


async def test_a_directory_that_became_a_link_to_elsewhere_is_not_worked_in(place: Place, tmp_path: Path) -> None:
    """The roots are checked when the program starts, not only when the message is accepted."""
    project, secret = tmp_path / "root/project", tmp_path / "secret"
    project.mkdir(parents=True)
    secret.mkdir()

    async with app_with(place, tmp_path / "root") as app:
        session = await app.session(Address.workspace(project, scope="main"))
        project.rmdir()
        project.symlink_to(secret)
        outcome = await (await session.send("tell where")).outcome()

        assert isinstance(outcome, Failed)
        assert "outside the directories in which this agent may work" in outcome.reason
        assert "secret" not in outcome.reason


async def test_a_program_that_dies_in_a_call_fails_the_turn_and_the_call_may_have_run(
    place: Place, tmp_path: Path
) -> None:
    async with app_with(place, tmp_path) as app:
        session = await app.session()
        turn = await session.send("die")
        ended = await ending(turn)

        assert isinstance(ended.outcome, Failed)
        assert "exit status 3; its last line on standard error was: the disk is on" in ended.outcome.reason
        assert ended.may_have_run == ("acp-1",)
        assert [call.effect for call in await turn.calls()] == ["unknown"]
        said = (await session.messages())[-1]
        assert (said.text, said.partial) == ("almost ", True)
        # The next process gets the history, with the unknown effect.
        ((earlier, _),) = (await roles_and_texts(session))["prompts"]
        assert "    interrupted: this call may or may not have run" in earlier.splitlines()


async def test_a_call_without_an_end_may_have_run_even_if_the_agent_completes(place: Place, tmp_path: Path) -> None:
    async with app_with(place, tmp_path) as app:
        ended = await ending(await (await app.session()).send("begin a tool"))

        assert (ended.outcome, ended.may_have_run) == (Completed(), ("acp-1",))


async def test_the_agent_is_permitted_only_after_a_person_approves(place: Place, tmp_path: Path) -> None:
    async with app_with(place, tmp_path) as app:
        session = await app.session()
        turn = await session.send("ask first")
        question = await asked(turn)
        lines = {line.call: (line.name, line.approval, line.effect) for line in await turn.calls()}
        assert lines == {"acp-1": ("edit", "none", "called"), question: ("permission", "asked", "called")}

        await turn.approve(question)
        assert await turn.outcome() == Completed()
        assert [line.effect for line in await turn.calls()] == ["returned", "returned"]
        assert (await session.messages())[-1].text == "yes "


async def test_a_denied_call_has_not_run(place: Place, tmp_path: Path) -> None:
    async with app_with(place, tmp_path) as app:
        session = await app.session()
        turn = await session.send("ask first")
        await turn.deny(await asked(turn))
        ended = await ending(turn)

        assert (ended.outcome, ended.may_have_run) == (Completed(), ())
        results = [part for one in await session.messages() for part in one.parts if isinstance(part, ToolResult)]
        assert ToolResult("acp-1", "not permitted", error=True) in results


async def test_a_cancelled_turn_stops_the_program_and_keeps_its_output(place: Place, tmp_path: Path) -> None:
    async with app_with(place, tmp_path, cancel_seconds=30.0) as app:
        session = await app.session()
        turn = await session.send("wait for it")
        await first_words(turn)
        await turn.cancel()
        assert isinstance(await turn.outcome(), Cancelled)
        await until((tmp_path / "cancelled").exists)
        assert (await session.messages())[-1].partial
        assert (await roles_and_texts(session))["prompts"][0][-1] == "tell the prompt"


async def test_one_agent_object_can_serve_all_sessions(place: Place, tmp_path: Path) -> None:
    async with backstay.open(place, agent=AcpAgent(PROGRAM, cwd=tmp_path)) as app:
        session = await app.session()
        first = await roles_and_texts(session)
        second = await roles_and_texts(session)

        assert second["pid"] != first["pid"]
        assert "    tell the prompt" in second["prompts"][0][0].splitlines()


async def test_a_session_without_a_directory_fails_with_a_hint(place: Place) -> None:
    async with backstay.open(place, agent=backstay.live(lambda: AcpAgent(PROGRAM))) as app:
        outcome = await (await (await app.session()).send("say hello")).outcome()

        assert isinstance(outcome, Failed)
        assert "--workspace DIR" in outcome.hint
