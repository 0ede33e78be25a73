"""A server is killed while a tool waits for a person: the turn still waits, and the decision continues it."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

import backstay
from backstay import open_store
from backstay.agents.scripted.scripted_agent import ScriptedAgent
from backstay.events import TurnContinued, TurnEnded
from backstay.model.ids import SessionId, TurnId
from backstay.model.turn import Completed, Interrupted
from tests.cli.installed_command import CommandResult, run_cli_in
from tests.databases import Place, let_leases_lapse
from tests.server.api_calls import accepted, new_session, until
from tests.server.server_process import serving

ME = "local"


class CutOff:
    """A session whose server was killed while its turn waited for approval."""

    def __init__(self, session: str, turn: str, call: str) -> None:
        self.session, self.turn, self.call = SessionId(session), TurnId(turn), call


@pytest.fixture
def cut_off(tmp_path: Path, place: Place) -> CutOff:
    with serving(tmp_path, "--db", str(place)) as served, served.client() as client:
        session = new_session(client)
        turn = accepted(client, session, "ask May I?", key="r1")
        until(lambda: bool(waiting_calls(client, turn)), "a call waits")
        (call,) = waiting_calls(client, turn)
        served.kill()
        let_leases_lapse(place, served.pid)
    return CutOff(session, turn, call)


def waiting_calls(client: httpx2.Client, turn: str) -> list[str]:
    calls = client.get(f"/api/turns/{turn}/calls").json()["calls"]
    return [call["call"] for call in calls if call["approval"] == "asked"]


def decision(client: httpx2.Client, cut_off: CutOff, *, approved: bool) -> httpx2.Response:
    place = f"/api/turns/{cut_off.turn}/calls/{cut_off.call}/decision"
    return client.put(place, json={"approved": approved})


def texts(place: Place, cut_off: CutOff) -> str:
    with open_store(place) as store:
        return " ".join(message.text for message in store.messages(cut_off.session, owner=ME).messages)


def test_a_turn_that_was_killed_while_it_asked_shows_that_it_still_waits(
    tmp_path: Path, place: Place, cut_off: CutOff
) -> None:
    with serving(tmp_path, "--db", str(place)) as served, served.client() as client:
        turn = client.get(f"/api/turns/{cut_off.turn}").json()
        (badge,) = client.get("/api/badges", params={"sessions": cut_off.session}).json()["badges"]

    assert (turn["outcome"]["type"], turn["outcome"]["waiting_for_approval"]) == ("interrupted", True)
    assert badge["asks"]


@pytest.mark.parametrize(("approved", "said"), [(True, "a person agreed: May I?"), (False, "denied by a person")])
def test_a_decision_over_http_continues_a_turn_whose_server_was_killed(
    tmp_path: Path, place: Place, cut_off: CutOff, approved: bool, said: str
) -> None:
    with serving(tmp_path, "--db", str(place)) as served, served.client() as client:
        decision(client, cut_off, approved=approved).raise_for_status()
        until(lambda: bool(following(client, cut_off)), "the turn is continued")
        second = following(client, cut_off)
        until(lambda: client.get(f"/api/turns/{second}").json()["state"] == "ended", "the answer is complete")
        repeated = accepted(client, cut_off.session, "ask May I?", key="r1")

    assert repeated == cut_off.turn
    assert texts(place, cut_off).count(said) == 1


def following(client: httpx2.Client, cut_off: CutOff) -> Any:
    return client.get(f"/api/turns/{cut_off.turn}").json()["continued_by"]


def by_store(place: Place, cut_off: CutOff) -> None:
    with open_store(place) as store:
        store.approve(cut_off.turn, cut_off.call, owner=ME)


async def test_an_approval_in_another_process_continues_the_turn_where_its_agent_is_served(
    place: Place, cut_off: CutOff, notify: bool
) -> None:
    await asyncio.to_thread(by_store, place, cut_off)

    async with backstay.open(place, agent=ScriptedAgent(), owner=ME, notify=notify) as app:
        session = await app.session(cut_off.session)
        second = ""
        async for event in session.follow():
            if isinstance(event.body, TurnContinued):
                assert event.turn == cut_off.turn
                second = event.body.by
            if isinstance(event.body, TurnEnded) and event.turn == second:
                break
        turn = await app.turn(cut_off.turn)
        continued = await turn.resume()
        assert (continued.id, await continued.outcome()) == (second, Completed())
    assert texts(place, cut_off).count("a person agreed: May I?") == 1


async def resumed_turn(app: backstay.App, cut_off: CutOff) -> backstay.Turn:
    return await (await app.turn(cut_off.turn)).resume()


async def resumed_session(app: backstay.App, cut_off: CutOff) -> backstay.Turn:
    return await (await app.session(cut_off.session)).resume()


Resume = Callable[[backstay.App, CutOff], Any]
RESUMPTIONS: dict[str, Resume] = {
    "turn": resumed_turn,
    "session": resumed_session,
}


@pytest.mark.parametrize("resume", RESUMPTIONS.values(), ids=RESUMPTIONS.keys())
async def test_a_resumed_turn_asks_again_and_the_person_can_still_decide(
    place: Place, cut_off: CutOff, resume: Resume
) -> None:
    async with backstay.open(place, agent=ScriptedAgent(), owner=ME) as app:
        turn = await resume(app, cut_off)
        async for event in turn.events():
            if event.body.__struct_config__.tag == "tool_called":
                break
        (call,) = await turn.calls()
        await turn.approve(call.call)
        assert await turn.outcome() == Completed()


def test_the_command_line_approves_and_prints_the_rest_of_the_answer(
    tmp_path: Path, place: Place, cut_off: CutOff
) -> None:
    listed = run_cli_in(tmp_path, place, "waiting", "--owner", ME).out
    assert cut_off.session in listed
    assert f"waits for approval: `backstay approve {cut_off.session}`" in listed

    done = run_cli_in(tmp_path, place, "approve", cut_off.session, "--agent", "scripted", "--owner", ME)

    # Nor does it ask for the decision that was just made.
    assert (done.code, done.err.count("not served here"), done.err.count("waits for approval")) == (0, 0, 0)
    assert run_cli_in(tmp_path, place, "waiting", "--owner", ME).out == ""
    assert "a person agreed: May I?" in done.out
    again = run_cli_in(tmp_path, place, "approve", cut_off.session, "--owner", ME)
    assert (again.code, "waits for approval" in again.err) == (1, True)


def test_the_command_line_denies_and_answers_machines(tmp_path: Path, place: Place, cut_off: CutOff) -> None:
    done = run_cli_in(tmp_path, place, "deny", cut_off.session, "--no-wait", "--json", "--owner", ME)
    assert json.loads(done.out)["call"] == cut_off.call

    done = run_cli_in(tmp_path, place, "resume", cut_off.session, "--agent", "scripted", "--json", "--owner", ME)

    assert "denied by a person" in json.loads(done.out)["text"]


def test_the_command_line_approves_while_a_server_runs_the_agent(tmp_path: Path, place: Place, cut_off: CutOff) -> None:
    with serving(tmp_path, "--db", str(place), "--agent", "default=scripted"):
        done = run_cli_in(tmp_path, place, "approve", cut_off.session, "--agent", "other=scripted", "--owner", ME)

    assert "a person agreed: May I?" in done.out


def test_the_command_line_decides_on_a_server_that_was_killed_and_started_again(
    tmp_path: Path, place: Place, cut_off: CutOff
) -> None:
    with serving(tmp_path, "--db", str(place)) as served:

        def on_server(*command: str) -> CommandResult:
            return run_cli_in(tmp_path, None, *command, "--server", served.url, BACKSTAY_TOKEN=served.token)

        listed = on_server("waiting", "--json")
        nothing = on_server("approve", cut_off.session, "--run-again")
        denied = on_server("deny", cut_off.session, "--no-wait", "--json")
        resumed = on_server("resume", cut_off.session, "--json")
        again = on_server("approve", cut_off.session)

    [work] = json.loads(listed.out)["sessions"]
    assert (work["session"], [call["call"] for call in work["calls"]]) == (cut_off.session, [cut_off.call])
    assert (nothing.code, "may have run" in nothing.err) == (1, True)
    assert json.loads(denied.out)["call"] == cut_off.call
    assert "denied by a person" in json.loads(resumed.out)["text"]
    assert (again.code, "waits for approval" in again.err) == (1, True)


def test_the_command_line_approves_on_a_server_and_prints_the_rest_of_the_answer(
    tmp_path: Path, place: Place, cut_off: CutOff
) -> None:
    with serving(tmp_path, "--db", str(place)) as served:
        command = ("approve", cut_off.session, "--server", served.url)
        done = run_cli_in(tmp_path, None, *command, BACKSTAY_TOKEN=served.token)

    assert (done.code, "a person agreed: May I?" in done.out) == (0, True), done.err


def test_a_server_resumes_the_last_turn_of_a_session(tmp_path: Path, place: Place, cut_off: CutOff) -> None:
    with serving(tmp_path, "--db", str(place)) as served, served.client() as client:
        answer = client.post(f"/api/sessions/{cut_off.session}/resume").json()
        assert client.get(f"/api/turns/{answer['id']}").json()["root"] == cut_off.turn
        again = client.post(f"/api/turns/{cut_off.turn}/resume").json()
        assert again["id"] == answer["id"]


def test_a_blocking_program_resumes_and_approves(place: Place, cut_off: CutOff) -> None:
    with backstay.open_blocking(place, agent=ScriptedAgent(), owner=ME) as app:
        assert isinstance(app.turn(cut_off.turn).read().outcome, Interrupted)
        app.turn(cut_off.turn).approve(cut_off.call)
        assert app.session(cut_off.session).resume().outcome() == Completed()
