"""Failures of the server, the network and the tab: the web UI shows the stored state, each word once."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, CDPSession, expect

from backstay.agents.adapters import AgentLike
from backstay.agents.scripted.scripted_agent import ScriptedAgent
from tests.databases import Place, let_leases_lapse
from tests.effort import tries
from tests.server.agents import patient
from tests.server.api_calls import accepted, answered, new_session, read, text_of, until, until_said
from tests.server.running_server import RunningServer, run_server
from tests.server.server_process import HERE, ServerProcess, agent_options, serving
from tests.web.browser_tab import Person, Tab
from tests.web.failures.breaking_proxy import breaking_proxy
from tests.web.web_agents import bursting, counting, dividing, spelling

# The page uses HTTP only, so the engine behind the server cannot matter.
pytestmark = pytest.mark.engines("sqlite")

AGENTS = agent_options(
    "tests.server.agents:echo", "patient=tests.server.agents:patient", "counting=tests.web.web_agents:counting"
)


@pytest.fixture
def server(place: Place) -> Iterator[RunningServer]:
    agents: dict[str, AgentLike] = {
        "default": ScriptedAgent(),
        "patient": patient,
        "counting": counting,
        "spelling": spelling,
        "bursting": bursting,
    }
    with run_server(place, agents) as server:
        yield server


def counted(tab: Tab) -> list[int]:
    """The numbers that the last answer shows."""
    return [int(word) for word in tab.answers.last.locator(".markdown").inner_text().split()]


def until_counted(tab: Tab, number: int) -> None:
    """Wait until the page shows more than this many."""
    tab.page.wait_for_function(
        "number => document.querySelector('.turn:last-of-type .markdown')?.innerText.split(' ').length > number",
        arg=number,
    )


def mark(tab: Tab) -> None:
    """Leave a mark in the document that a reload would remove."""
    tab.page.evaluate("document.body.dataset.same = 'yes'")


def is_same(tab: Tab) -> bool:
    """Whether this document has the mark."""
    return bool(tab.page.evaluate("document.body.dataset.same === 'yes'"))


def enough(client: httpx2.Client, session: str) -> None:
    """Stop the counting."""
    assert client.post(f"/api/sessions/{session}/steer", json={"text": "enough"}).status_code < 300


def until_settled(tab: Tab) -> None:
    """Wait until the last answer has ended on the page."""
    expect(tab.last.locator(".tools")).to_be_attached()


# --- the server ------------------------------------------------------------------------------------------------------


def test_a_server_killed_during_an_answer_comes_back_without_gap_repeat_or_reload(
    browser: Browser, tmp_path: Path, place: Place
) -> None:
    with serving(tmp_path, "--db", str(place), *AGENTS, environment=HERE) as served, served.client() as client:
        session, port = new_session(client), str(served.port)
        answered(client, session, "many 30")
        person = Person(browser, client)
        tab = person.tab(session)
        accepted(client, session, "count", agent="counting")
        expect(tab.turns).to_have_count(2)
        until_counted(tab, 20)
        tab.who.select_option("default")
        mark(tab)
        served.kill()
        let_leases_lapse(place, served.pid)

        expect(tab.connection).to_have_text("Reconnecting…")
        tab.say("said while the server is dead")
        expect(tab.page.locator(".sending")).to_contain_text("as soon as it is back")

    again = ("--db", str(place), "--port", port, *AGENTS)
    with serving(tmp_path, *again, environment=HERE) as served, served.client() as client, person:
        expect(tab.connection).to_have_text("Live")
        expect(tab.page.locator(".banner.recovered")).to_contain_text("Reconnected.")
        expect(tab.page.locator(".ending.interrupted")).to_have_count(1)
        expect(tab.turns).to_have_count(3)
        expect(tab.last.locator(".answer")).to_contain_text("said while the server is dead")
        expect(tab.message).to_have_value("")
        until_settled(tab)
        live = tab.transcript()
        assert is_same(tab)
        stored = [text_of(message) for message in read(client, session)]
        shown = tab.turns.nth(1).locator(".markdown").inner_text().split()
        assert shown == stored[3].split() == [str(number) for number in range(1, len(shown) + 1)]
        assert stored.count("said while the server is dead") == 1

        tab.page.reload()
        expect(tab.turns).to_have_count(3)
        assert tab.transcript() == live


def test_a_cut_off_answer_is_resumed(browser: Browser, tmp_path: Path, place: Place) -> None:
    with serving(tmp_path, "--db", str(place), *AGENTS, environment=HERE) as served, served.client() as client:
        session, port = new_session(client), str(served.port)
        accepted(client, session, "a long story", agent="patient")
        until_said(client, session, "listening ")
        served.kill()
        let_leases_lapse(place, served.pid)
    with (
        serving(tmp_path, "--db", str(place), "--port", port, *AGENTS, environment=HERE) as served,
        served.client() as client,
        Person(browser, client) as person,
    ):
        tab = person.tab(session)
        expect(tab.page.locator(".ending.interrupted")).to_contain_text("The text so far is kept")
        tab.button("Resume").click()
        expect(tab.turns).to_have_count(2)
        expect(tab.last.locator(".answer")).to_contain_text("listening")
        tab.button("Stop the answer").click()
        expect(tab.last.locator(".ending.cancelled")).to_be_visible()


def test_a_person_approves_a_call_of_an_answer_that_was_cut_off(browser: Browser, tmp_path: Path, place: Place) -> None:
    with serving(tmp_path, "--db", str(place)) as served, served.client() as client:
        session, port = new_session(client), str(served.port)
        turn = accepted(client, session, "ask May I?")
        until(lambda: bool(client.get(f"/api/turns/{turn}/calls").json()["calls"]), "the tool asks")
        served.kill()
        let_leases_lapse(place, served.pid)
    with (
        serving(tmp_path, "--db", str(place), "--port", port) as served,
        served.client() as client,
        Person(browser, client) as person,
    ):
        tab = person.tab(session)
        expect(tab.page.locator(".ending.interrupted")).to_contain_text("A tool waits for your approval.")
        tab.page.get_by_role("button", name="Allow", exact=True).click()
        expect(tab.turns).to_have_count(2)
        expect(tab.last.locator(".answer")).to_contain_text("a person agreed: May I?")


def test_after_a_tool_that_may_have_run_no_repetition_is_offered(
    browser: Browser, tmp_path: Path, place: Place
) -> None:
    with (
        serving(tmp_path, "--db", str(place), "--demo") as served,
        served.client() as client,
        Person(browser, client) as person,
    ):
        tab = person.tab(new_session(client))
        (doomed,) = workers_of(served)
        tab.say("pay 5 crash")
        until(lambda: doomed not in workers_of(served), "it has crashed")
        let_leases_lapse(place, doomed)

        expect(tab.page.get_by_role("button", name="Allow pay again")).to_be_visible()
        expect(tab.page.get_by_role("button", name="Retry")).to_have_count(0)
        expect(tab.page.get_by_role("button", name="Answer again")).to_have_count(0)
        tab.page.get_by_role("button", name="Allow pay again").click()
        expect(tab.last.locator(".answer")).to_contain_text("paid 5")


@pytest.mark.parametrize("debug", [True, False])
def test_a_developer_sees_the_traceback_of_an_agent_and_nobody_else_does(
    browser: Browser, place: Place, debug: bool
) -> None:
    agents: dict[str, AgentLike] = {"default": dividing}
    with run_server(place, agents, debug=debug) as server, server.client() as client, Person(browser, client) as person:
        tab = person.tab(new_session(client))
        tab.say("hello")
        ending = tab.page.locator(".ending.failed")
        expect(ending).to_contain_text("raised ZeroDivisionError")
        expect(ending.locator(".traceback")).to_have_count(int(debug))
        if debug:
            expect(ending.locator(".traceback")).to_contain_text("ZeroDivisionError: division by zero")
            expect(ending.locator(".traceback")).to_contain_text("web_agents.py")


def test_a_newcomer_crashes_the_server_and_watches(browser: Browser, tmp_path: Path, place: Place) -> None:
    with (
        serving(tmp_path, "--db", str(place), "--demo") as served,
        served.client() as client,
        Person(browser, client) as person,
    ):
        tab = person.tab()
        (doomed,) = workers_of(served)
        tab.page.get_by_role("button", name="Crash the server and watch").click()
        until(lambda: doomed not in workers_of(served), "it has crashed")
        let_leases_lapse(place, doomed)

        expect(tab.page.locator(".banner.recovered")).to_contain_text("One answer was interrupted")
        expect(tab.last).to_contain_text("I am about to crash.")
        expect(tab.last.locator(".ending.interrupted")).to_be_visible()
        expect(tab.connection).to_have_text("Live")
        expect(tab.button("Resume the answer")).to_have_count(1)

        tab.button("Resume").click()
        expect(tab.turns).to_have_count(2)
        expect(tab.button("Resume the answer")).to_have_count(0)  # it was resumed


def workers_of(served: ServerProcess) -> list[int]:
    """The processes that the supervisor has started."""
    children = Path(f"/proc/{served.pid}/task/{served.pid}/children").read_text().split()
    return [int(child) for child in children]


# --- the network -----------------------------------------------------------------------------------------------------

# Within the headers, within a frame, between two; and the longer ones after many events.
CUTS = (40, 400, 611, 1_024, 2_000, 3_333)


def test_a_stream_that_is_cut_anywhere_again_and_again_loses_and_repeats_nothing(
    browser: Browser, server: RunningServer, client: httpx2.Client
) -> None:
    session = new_session(client)
    with breaking_proxy(server.port, CUTS) as line:
        far = httpx2.Client(
            base_url=f"http://127.0.0.1:{line.port}", headers=client.headers, trust_env=False, verify=False
        )
        with far, Person(browser, far) as person:
            tab = person.tab(session)
            accepted(client, session, "count", agent="counting")
            until_counted(tab, 1)
            mark(tab)
            line.wait()
            until_counted(tab, len(counted(tab)))
            enough(client, session)

            until_settled(tab)
            assert is_same(tab)
            assert counted(tab) == [int(word) for word in text_of(read(client, session)[1]).split()]


def test_a_tab_that_was_offline_catches_up_by_itself(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    tab = person.tab(session)
    accepted(client, session, "count", agent="counting")
    until_counted(tab, 5)
    mark(tab)

    tab.page.context.set_offline(True)
    expect(tab.connection).to_have_text("Reconnecting…")
    # What had arrived before may still be drawn now.
    until(lambda: said_so_far(client, session) > len(counted(tab)) + 50, "much is said meanwhile")
    behind = len(counted(tab))
    tab.page.context.set_offline(False)
    expect(tab.connection).to_have_text("Live")
    until_counted(tab, behind + 50)
    enough(client, session)

    until_settled(tab)
    expect(tab.page.locator(".banner.recovered")).to_contain_text("Reconnected.")
    assert is_same(tab)
    assert counted(tab) == [int(word) for word in text_of(read(client, session)[1]).split()]


def said_so_far(client: httpx2.Client, session: str) -> int:
    """The number of numbers in the running answer."""
    said = client.get(f"/api/sessions/{session}/snapshot").json()["output"]
    return sum(len(text_of(message).split()) for message in said)


def test_a_slow_connection_shows_the_same_conversation_later(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    slow, quick = person.tab(session), person.tab(session)
    network: CDPSession = slow.page.context.new_cdp_session(slow.page)
    network.send("Network.enable")
    conditions = {"offline": False, "latency": 200, "downloadThroughput": 20_000, "uploadThroughput": 20_000}
    network.send("Network.emulateNetworkConditions", conditions)

    slow.say("said over a slow line")
    slow.page.keyboard.type("and at once more")  # It is not accepted yet, and need not be.
    slow.page.keyboard.press("Enter")
    expect(quick.page.locator(".asked")).to_have_text(["said over a slow line", "and at once more"])
    until_settled(quick)
    accepted(client, session, "count", agent="counting")
    until_counted(quick, 100)
    enough(client, session)

    for tab in (quick, slow):
        expect(tab.turns).to_have_count(3)
        until_settled(tab)
    assert slow.transcript() == quick.transcript()
    assert counted(slow) == [int(word) for word in text_of(read(client, session)[5]).split()]


# --- the tab ---------------------------------------------------------------------------------------------------------


def test_two_tabs_and_a_phone_stay_in_step(browser: Browser, person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    with Person(browser, client, phone=True) as traveller:
        one, phone = person.tab(session), traveller.tab(session)
        accepted(client, session, "count", agent="counting")
        until_counted(one, 20)
        two = person.tab(session)
        for tab in (one, phone):
            tab.who.select_option("default")
        one.say("from the first tab")
        expect(phone.queue).to_have_count(1)
        phone.say("from the telephone")
        for tab in (one, two, phone):
            expect(tab.queue).to_have_text([words("from the first tab"), words("from the telephone")])
        enough(client, session)

        for tab in (one, two, phone):
            expect(tab.turns).to_have_count(3)
            until_settled(tab)
        transcripts = {tab.transcript() for tab in (one, two, phone)}
        assert len(transcripts) == 1
        shown = one.turns.first.locator(".markdown").inner_text()
        assert [int(word) for word in shown.split()] == [
            int(word) for word in text_of(read(client, session)[1]).split()
        ]


def words(text: str) -> str:
    """How a waiting message is listed."""
    return f"queued{text}"


def test_a_tab_reloaded_at_any_moment_of_an_answer_shows_the_same(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    accepted(client, session, "a long story", agent="patient")
    still, reloaded = person.tab(session), person.tab(session)
    for moment in range(tries(3, 10, 50)):
        client.post(f"/api/sessions/{session}/steer", json={"text": f"remark {moment}"})
        for tab in (still, reloaded):
            expect(tab.answers.last).to_contain_text(f"heard remark {moment}")
        before = reloaded.transcript()
        reloaded.page.reload()
        expect(reloaded.answers.last).to_contain_text(f"heard remark {moment}")
        assert reloaded.transcript() == before == still.transcript()
    enough(client, session)

    for tab in (still, reloaded):
        until_settled(tab)
    ended = reloaded.transcript()
    reloaded.page.reload()
    until_settled(reloaded)
    assert reloaded.transcript() == ended == still.transcript()


def test_an_answer_that_arrives_at_once_is_drawn_completely(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    tab = person.tab(session)
    tab.page.context.set_offline(True)
    expect(tab.connection).to_have_text("Reconnecting…")
    answered(client, session, "all of them", agent="bursting")

    # All events arrive at once, and no later event would reveal a gap.
    tab.page.context.set_offline(False)

    until_settled(tab)
    assert counted(tab) == list(range(1, 10_001))


MARKDOWN = """# A title

Some *words*, a [link][far], `code` and https://example.org/x.

- tight
- items **with** [another][far]

1. loose

2. items

   with a second paragraph

> quoted
> - and listed

| a | b |
|---|---|
| 1 | `2` |

```python
def twice(x):
    return x + x
```

A setext title
---

***

    indented code

The end [is][far] explained below.

[far]: https://example.org/far
"""


def test_markdown_that_arrived_in_pieces_is_drawn_like_markdown_read_at_once(
    person: Person, client: httpx2.Client
) -> None:
    session = new_session(client)
    tab = person.tab(session)
    for text in (MARKDOWN, MARKDOWN.replace("[far]: https://example.org/far\n", "")):
        accepted(client, session, text, agent="spelling")
        expect(tab.last.locator("h1")).to_have_text("A title")
        until_settled(tab)
    expect(tab.page.locator(".hl-keyword").nth(3)).to_be_attached()
    drawn = tab.page.locator(".markdown").evaluate_all("all => all.map(one => one.innerHTML.split('<'))")

    tab.page.reload()
    expect(tab.page.locator(".hl-keyword").nth(3)).to_be_attached()
    assert tab.page.locator(".markdown").evaluate_all("all => all.map(one => one.innerHTML.split('<'))") == drawn
    expect(tab.turns.first.locator("a", has_text="link")).to_have_attribute("href", "https://example.org/far")
