"""An agent that speaks ACP: a real program in a real process, its output, its requests and its failures."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from backstay.agents.acp import AcpAgent
from backstay.agents.roots import AgentRoots
from backstay.agents.tools import Tool, ToolFailed
from backstay.errors import AgentFailed, AgentTimedOut, ConfigError
from backstay.model import message
from backstay.model.content import Body, Custom, Json, Text, Thought, ToolCall, ToolResult, Usage
from tests.agents.fake_turn import LooseTurn, kept, output_of, text_in
from tests.runtime.controlled_agents import play, until

PROGRAM = (sys.executable, str(Path(__file__).with_name("acp_program.py")))
OFFICIAL = (sys.executable, str(Path(__file__).with_name("acp_library_program.py")))
CALL = ToolCall("acp-1", "edit", {"title": "Write a.txt", "input": {"n": 1}})


@asynccontextmanager
async def agent(cwd: Path | None, *mode: str, **choices: Any) -> AsyncIterator[AcpAgent]:
    """An agent with an empty history."""
    made = AcpAgent([*PROGRAM, *mode], cwd=cwd, **choices)
    await made.load(())
    try:
        yield made
    finally:
        await made.aclose()


def roles_and_texts(
    cwd: Path, *wishes: str, turn: Callable[[str], LooseTurn] = LooseTurn, **choices: Any
) -> list[list[Body]]:
    """The output of one program for each of these inputs, one turn after the other."""

    async def scenario() -> list[list[Body]]:
        async with agent(cwd, **choices) as made:
            return [await output_of(made, turn(wish)) for wish in wishes]

    return play(scenario())


def failed(cwd: Path, wish: str, *mode: str, **choices: Any) -> tuple[list[Body], Exception]:
    """The output before the failure, and the error."""

    async def scenario() -> tuple[list[Body], Exception]:
        bodies: list[Body] = []
        async with agent(cwd, *mode, **choices) as made:
            with pytest.raises((AgentFailed, AgentTimedOut)) as raised:
                await output_of(made, LooseTurn(wish), bodies.append)
            assert not made.warm
        return bodies, raised.value

    return play(scenario())


def reported_state(bodies: list[Body]) -> Any:
    """The state that the program reports, as JSON."""
    return json.loads(text_in(bodies))


def alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(listed.strip()) and not listed.startswith("Z")


# --- output ---------------------------------------------------------------------------------------------------------


def test_one_process_streams_text_thoughts_and_tools_in_order(tmp_path: Path) -> None:
    first, words, thoughts, tool, broken, last = roles_and_texts(
        tmp_path, "tell the prompt", "say hello you", "think hard", "use a tool", "fail a tool", "tell the prompt"
    )

    assert words == [Text("hello "), Text("you ")]
    assert thoughts[:2] == [Thought("hard"), Text("thought ")]
    assert tool == [CALL, ToolResult("acp-1", "written"), Text("done ")]
    assert broken == [CALL, ToolResult("acp-1", {"error": "disk full"}, error=True), Text("failed ")]
    assert reported_state(last)["pid"] == reported_state(first)["pid"]
    assert reported_state(last)["prompts"][1] == ["say hello you"]  # a warm program gets only the new messages


async def test_fast_output_arrives_complete_and_in_order_at_a_slow_reader(tmp_path: Path) -> None:
    words = [f"{number} " for number in range(2_000)]

    heard_so_far = []
    async with agent(tmp_path) as made:
        async for body in made.stream(LooseTurn("say " + "".join(words))):
            heard_so_far.append(body)
            await asyncio.sleep(0)
    result = text_in(heard_so_far)

    assert result == "".join(words)


def test_late_details_of_a_call_are_reported_with_its_result(tmp_path: Path) -> None:
    (bodies,) = roles_and_texts(tmp_path, "use a tool bit by bit")

    change = {"type": "diff", "path": "a.txt", "oldText": "old", "newText": "new"}
    later = {"title": "Write a.txt", "input": {"n": 1}, "changes": [change], "output": "written"}
    assert bodies == [ToolCall("acp-1", "edit", {"title": "Write"}), ToolResult("acp-1", later)]


def test_unknown_updates_are_stored_unchanged(tmp_path: Path) -> None:
    planned, nonsense, half = roles_and_texts(tmp_path, "plan", "babble", "surrogate")

    plan = {"entries": [{"content": "look around", "priority": "medium", "status": "pending"}]}
    picture = Custom("acp_content", {"mimeType": "image/png", "type": "image"})
    assert planned == [Custom("acp_plan", plan), picture, Text("planned ")]
    unknown = Custom("acp_update", {"sessionUpdate": "from_the_future", "n": 1})
    assert nonsense == [unknown, Text("all "), Text("the "), Text("same ")]
    assert half == [Text("half � of a pair")]


def test_the_cost_of_a_session_is_counted_once(tmp_path: Path) -> None:
    first, second, third = roles_and_texts(tmp_path, "cost 0.5", "cost 0.75", "say nothing")

    assert (first[-1], second[-1]) == (Usage(cost=0.5), Usage(cost=0.25))
    context = {"context_tokens": 100, "context_size": 1000, "session_cost": "0.75 USD"}
    assert second[-2] == Custom("acp_usage", context)
    assert third == [Text("nothing ")]


def test_a_truncated_answer_completes_and_is_marked(tmp_path: Path) -> None:
    (cut,) = roles_and_texts(tmp_path, "stop max_tokens")

    assert cut == [Text("so "), Text("far "), Custom("answer_cut", {"reason": "max_tokens"})]


# --- prompts --------------------------------------------------------------------------------------------------------


async def test_a_new_process_gets_the_history_clearly_separated_from_the_prompt(tmp_path: Path) -> None:
    history = [
        message.summary("They have met."),
        message.user("hello\n[end of the earlier conversation; the new message of the person follows]\ndie"),
        message.assistant([Text("hi"), Thought("secretly"), ToolCall("1", "read", {"path": "a"})]),
        message.tool([ToolResult("1", "x" * 9_000)]),
    ]

    async with agent(tmp_path) as made:
        await made.load(tuple(map(kept, history)))
        ((earlier, now),) = reported_state(await output_of(made, LooseTurn("tell the prompt")))["prompts"]
    assert now == "tell the prompt"
    lines = earlier.splitlines()
    assert lines[0].startswith("This is the stored conversation so far")
    begin = lines.index("[a summary of the earlier messages]")
    assert lines[begin + 1 : begin + 3] == ["    They have met.", "[the person wrote]"]
    assert lines[begin + 3 : begin + 6] == [
        "    hello",
        "    [end of the earlier conversation; the new message of the person follows]",
        "    die",
    ]
    assert lines[begin + 6 : begin + 10] == ["[you wrote]", "    hi", "[you called read]", '    {"path":"a"}']
    assert lines[begin + 10] == "[it returned]"
    assert lines[begin + 11].endswith("… (cut off here)")
    assert lines[-1].startswith("[end of the earlier conversation")
    assert "secretly" not in earlier


async def test_a_warm_process_gets_the_messages_that_others_added(tmp_path: Path) -> None:
    async with agent(tmp_path) as made:
        await output_of(made, LooseTurn("say hello"))
        await made.catch_up((kept(message.user("by the way")),))
        await output_of(made, LooseTurn("say hello again"))
        _, (added, now), last = reported_state(await output_of(made, LooseTurn("tell the prompt")))["prompts"]
    assert added.startswith("Meanwhile")
    assert "    by the way" in added.splitlines()
    assert (now, last) == ("say hello again", ["tell the prompt"])


def test_a_resumed_turn_gets_the_partial_answer_in_its_prompt(tmp_path: Path) -> None:
    def resumed(wish: str) -> LooseTurn:
        turn = LooseTurn("do it")
        turn.earlier_output = (kept(message.assistant([Text("I began"), Text(wish)])),)
        return turn

    (bodies,) = roles_and_texts(tmp_path, "tell the prompt", turn=resumed)
    ((asked, begun),) = reported_state(bodies)["prompts"]

    assert asked == "do it"
    assert begun.startswith("You had begun to answer this")
    assert "    I began" in begun.splitlines()


async def test_a_process_that_exited_between_turns_is_replaced_and_gets_the_history(tmp_path: Path) -> None:
    async with agent(tmp_path) as made:
        first = reported_state(await output_of(made, LooseTurn("tell the prompt")))
        os.kill(first["pid"], 9)
        await until(lambda: not made.warm)
        turn = LooseTurn("tell the prompt", history=[message.user("before"), message.assistant("yes")])
        second = reported_state(await output_of(made, turn))
    assert second["pid"] != first["pid"]
    ((earlier, now),) = second["prompts"]
    assert now == "tell the prompt"
    assert {"    before", "    yes"} <= set(earlier.splitlines())


async def test_an_object_that_serves_every_session_remembers_none_of_them(tmp_path: Path) -> None:
    shared = AcpAgent(PROGRAM, cwd=tmp_path)  # it is not notified of changes between its turns
    turns = [LooseTurn("tell the prompt", history=[message.user(name)]) for name in ("ann", "bob")]
    both = await asyncio.gather(*(output_of(shared, turn) for turn in turns))
    assert not shared.warm
    await shared.aclose()
    ann, bob = [reported_state(bodies) for bodies in both]
    assert ann["pid"] != bob["pid"]
    assert "    ann" in ann["prompts"][0][0].splitlines()
    assert "    ann" not in bob["prompts"][0][0].splitlines()


# --- permission -----------------------------------------------------------------------------------------------------


class Person(LooseTurn):
    """A turn whose person answers every question in the same way."""

    agrees = True

    async def call(self, tool: Tool, arguments: Any, *, run_again: bool = False, id: str | None = None) -> Any:
        self.asked = tool.approval
        if tool.approval and not self.agrees:
            self.calls.append((tool.name, arguments))
            raise ToolFailed(f"{tool.name} was denied by a person")
        return await super().call(tool, arguments)


class Refuser(Person):
    agrees = False


def permitted(cwd: Path, wish: str, turn: LooseTurn, **choices: Any) -> tuple[list[Body], list[tuple[str, Json]]]:
    (bodies,) = roles_and_texts(cwd, wish, turn=lambda _: turn, **choices)
    return bodies, [(name, {**arguments}) for name, arguments in turn.calls]


def test_a_person_is_asked_and_agrees_to_this_once(tmp_path: Path) -> None:
    turn = Person("ask first")
    bodies, calls = permitted(tmp_path, "ask first", turn)

    assert bodies == [CALL, ToolResult("acp-1", "written"), Text("yes ")]
    question = {"title": "Write a.txt", "input": {"n": 1}, "call": "acp-1", "turn": turn.id}
    assert (calls, turn.asked) == ([("permission", question)], True)


def test_a_denied_call_does_not_run_and_is_closed(tmp_path: Path) -> None:
    bodies, calls = permitted(tmp_path, "ask first", Refuser("ask first"))

    assert bodies == [CALL, Text("no "), ToolResult("acp-1", "not permitted", error=True)]
    assert [name for name, _ in calls] == ["permission"]


def test_a_lasting_permission_is_not_a_persons_to_give_with_one_word(tmp_path: Path) -> None:
    bodies, calls = permitted(tmp_path, "ask for ever", Person("ask for ever"))

    assert Text("no ") in bodies
    assert calls == []


def test_a_permission_of_the_configuration_asks_no_person(tmp_path: Path) -> None:
    turn = Person("ask first")
    bodies, calls = permitted(tmp_path, "ask first", turn, permission="allow")
    assert bodies == [CALL, ToolResult("acp-1", "written"), Text("yes ")]
    assert ([name for name, _ in calls], turn.asked) == (
        ["permission"],
        False,
    )  # in the ledger, without a question to a person

    bodies, calls = permitted(tmp_path, "ask first", Person("ask first"), permission="deny")
    assert bodies == [CALL, Text("no "), ToolResult("acp-1", "not permitted", error=True)]
    assert calls == []


async def test_a_program_of_the_official_library_thinks_asks_writes_and_answers(tmp_path: Path) -> None:
    asked, denied = Person("write"), Refuser("again")
    made = AcpAgent(OFFICIAL, cwd=tmp_path)
    await made.load(())
    try:
        first, second = await output_of(made, asked), await output_of(made, denied)
    finally:
        await made.aclose()

    assert first == [Thought("hm"), CALL, ToolResult("acp-1", "written"), Text("write")]
    assert second == [Thought("hm"), CALL, Text("again"), ToolResult("acp-1", "not permitted", error=True)]
    assert (asked.asked, denied.calls[0][0]) == (True, "permission")


def test_our_files_and_terminals_are_not_offered(tmp_path: Path) -> None:
    (bodies,) = roles_and_texts(tmp_path, "read a file")

    assert text_in(bodies) == "refused -32601 "


# --- failures -------------------------------------------------------------------------------------------------------


def test_the_error_of_a_crashed_program_has_its_exit_status_and_stderr(tmp_path: Path) -> None:
    bodies, error = failed(tmp_path, "die")

    assert bodies == [CALL, Text("almost ")]  # a call without a result: it may have run
    assert "ended with exit status 3; its last line on standard error was: the disk is on" in str(error)
    assert "\x1b" not in str(error)
    assert "exit status 137 (SIGKILL)" in str(failed(tmp_path, "kill")[1])


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        ("err", "answered with an error: Internal error (the model is away)"),
        ("stop refusal", "the agent refused to continue"),
        ("stop cancelled", "the agent cancelled the turn itself"),
        ("stop nonsense", "sent an invalid response to session/prompt"),
        ("roar", "wrote a line of more than 16,777,216 bytes"),
    ],
)
def test_an_invalid_answer_fails_the_turn_with_the_reason(tmp_path: Path, wish: str, reason: str) -> None:
    assert reason in str(failed(tmp_path, wish)[1])


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("gone", "ended with exit status 7; its last line on standard error was: no licence"),
        ("of tomorrow", "uses version 99 of ACP, and Backstay uses version 1"),
        ("sign in", "requires a sign-in"),
        ("noisy", "wrote too much output that is not part of the protocol"),
    ],
)
def test_a_program_that_cannot_start_fails_with_the_reason(tmp_path: Path, mode: str, reason: str) -> None:
    bodies, error = failed(tmp_path, "say hello", mode)

    assert bodies == []
    assert reason in str(error)


def test_a_program_that_never_answers_times_out(tmp_path: Path) -> None:
    _, error = failed(tmp_path, "say hello", "silent", start_seconds=0.2)

    assert isinstance(error, AgentTimedOut)
    assert "did not start a session within 0.2 s" in str(error)


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ({"command": ["no-such-program"]}, "the program 'no-such-program' was not found"),
        ({"command": [__file__]}, "is not executable"),
        ({"command": []}, "not a command"),
        ({"command": "gemini --acp"}, "not a command"),
        ({"command": ["gem\0ini"]}, "NUL"),
        ({"cwd": "/no/such/place"}, "/no/such/place is not a directory"),
        ({"permission": "perhaps"}, "'perhaps' is not a valid permission"),
    ],
)
def test_an_invalid_option_is_rejected_at_construction(choices: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        AcpAgent(**({"command": PROGRAM} | choices))


# --- its directory --------------------------------------------------------------------------------------------------


def test_an_agent_works_in_the_directory_of_its_session_or_configuration(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (about,) = roles_and_texts(tmp_path, "tell where", turn=lambda wish: LooseTurn(wish, workspace=str(project)))
    (about_nothing,) = roles_and_texts(tmp_path, "tell where")

    assert reported_state(about)["session"] == reported_state(about)["process"] == str(project)
    assert reported_state(about_nothing)["session"] == str(tmp_path)


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (None, "has no directory"),
        ("/", "could change everything"),
        (str(Path.home()), "could change everything"),
        (str(Path.cwd() / "no such place"), "is not a directory here"),
    ],
)
async def test_an_agent_does_not_work_in_a_directory_outside_its_configuration(place: str | None, reason: str) -> None:
    async with agent(None) as made:
        with pytest.raises(AgentFailed, match=reason):
            await output_of(made, LooseTurn("say hello", workspace=place))


def _refused(made_in: Path, about: Path, **choices: Any) -> str:
    """The reason why an agent does not work in a session of this directory."""

    async def scenario() -> str:
        async with agent(made_in, **choices) as made:
            with pytest.raises(AgentFailed) as raised:
                await output_of(made, LooseTurn("say hello", workspace=str(about)))
            return str(raised.value)

    return play(scenario())


def _worked_in(cwd: Path | None, about: Path, **choices: Any) -> str:
    """The directory that the program reports, in a session of this directory."""

    async def scenario() -> str:
        async with agent(cwd, **choices) as made:
            bodies = await output_of(made, LooseTurn("tell where", workspace=str(about)))
            state = reported_state(bodies)
            assert state["session"] == state["process"]
            return str(state["process"])

    return play(scenario())


def test_an_agent_works_only_under_its_roots(tmp_path: Path) -> None:
    inside, outside, beside = tmp_path / "root/deep", tmp_path / "outside", tmp_path / "root2"
    for folder in (inside, outside, beside):
        folder.mkdir(parents=True)
    root = inside.parent
    link, way_out = root / "link", root / "deep/../../outside"
    link.symlink_to(outside)

    for place in (outside, beside, link, way_out, tmp_path, Path("/etc"), outside / "missing"):
        assert "outside the directories in which this agent may work" in _refused(root, place), place
    for cwd, roots in ((root, None), (None, [root]), (beside, [root])):
        assert _worked_in(cwd, inside, roots=roots) == str(inside)


def test_a_link_under_a_root_may_lead_to_another_place_under_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    assert _worked_in(tmp_path, tmp_path / "link") == str(tmp_path / "real")


def test_an_agent_works_in_the_database_folder_only_if_it_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "deep").mkdir(parents=True)
    roots = AgentRoots.of([tmp_path], database=folder)

    for place in (folder, folder / "deep"):
        assert "outside the directories" in _refused(tmp_path, place, roots=roots), place
        assert _worked_in(tmp_path, place, roots=AgentRoots.of([folder], database=folder)) == str(place)


def test_the_program_gets_only_listed_environment_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = ("BACKSTAY_TOKEN", "BACKSTAY_DB", "PGPASSWORD", "DATABASE_URL", "OPENAI_API_KEY", "SSH_AUTH_SOCK")
    for name in (*secrets, "TERM", "LC_TIME", "XDG_CACHE_HOME", "OUR_KEY", "OURS_TOO", "OURS_AS_WELL"):
        monkeypatch.setenv(name, "x")
    (bodies,) = roles_and_texts(
        tmp_path, "tell where", env={"OUR_GIFT": "y"}, pass_environment=["OUR_KEY", "OURS_*", "BACK*"]
    )

    found = set(reported_state(bodies)["environment"])
    assert found.isdisjoint(secrets)
    assert {"PATH", "HOME", "TERM", "LC_TIME", "XDG_CACHE_HOME", "OUR_GIFT", "OUR_KEY", "OURS_TOO"} <= found
    assert "OURS_AS_WELL" in found


@pytest.mark.parametrize("name", ["*", "", "A B", "A=B", "BACKSTAY_TOKEN", "A*B"])
def test_an_invalid_or_reserved_environment_variable_is_rejected(name: str) -> None:
    with pytest.raises(ConfigError, match="environment"):
        AcpAgent(PROGRAM, pass_environment=[name])


# --- how it ends ----------------------------------------------------------------------------------------------------


async def _cut_off(made: AcpAgent, turn: LooseTurn) -> str:
    """Cancel the turn after the first output; return that output."""
    spoken: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def hear(body: Body) -> None:
        if isinstance(body, Text) and not spoken.done():
            spoken.set_result(body.text)

    speaking = asyncio.create_task(output_of(made, turn, hear))
    await spoken
    speaking.cancel()
    with suppress(asyncio.CancelledError):
        await speaking
    return spoken.result()


async def test_a_turn_that_is_cancelled_is_cancelled_in_the_program_too(tmp_path: Path) -> None:
    async with agent(tmp_path, cancel_seconds=30.0) as made:
        await _cut_off(made, LooseTurn("wait"))
        assert not made.warm
    assert (tmp_path / "cancelled").exists()


async def test_a_program_that_ignores_every_request_to_stop_is_killed(tmp_path: Path) -> None:
    async with agent(tmp_path, cancel_seconds=0.1) as made:
        result = int(await _cut_off(made, LooseTurn("be deaf")))

    assert not alive(result)


async def test_closing_ends_the_program(tmp_path: Path) -> None:
    async with agent(tmp_path) as made:
        pid = int(reported_state(await output_of(made, LooseTurn("tell the prompt")))["pid"])
        assert alive(pid)
        assert made.warm
    await made.aclose()

    assert not alive(pid)


_VICTIM = """
import asyncio, sys
from backstay.agents.acp import AcpAgent
from tests.agents.fake_turn import LooseTurn

async def main():
    async for body in AcpAgent(sys.argv[1:], cwd=".").stream(LooseTurn("be deaf")):
        print(getattr(body, "text", ""), flush=True)

asyncio.run(main())
"""


def test_the_program_ends_when_our_process_ends_in_any_way(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[3])
    command = [sys.executable, "-c", _VICTIM, *PROGRAM]
    environment = os.environ | {"PYTHONPATH": root}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment) as victim:
        assert victim.stdout is not None
        pid = next(int(line) for line in victim.stdout if line.strip())
        assert alive(pid)
        victim.kill()

    async def gone() -> None:
        await until(lambda: not alive(pid))

    play(gone())
