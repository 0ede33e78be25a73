"""The page when something breaks: the server, the network, the tab. What it shows is what is stored, each word once."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, CDPSession, expect

from backstay.agents.adapters import AgentLike
from backstay.agents.scripted.scripted_agent import ScriptedAgent
from tests.databases import Place, let_leases_lapse
from tests.server.agents import patient
from tests.server.api_calls import accepted, answered, new_session, read, text_of, until, until_said
from tests.server.running_server import RunningServer, run_server
from tests.server.server_process import HERE, ServerProcess, agent_options, serving
from tests.web.breaking_proxy import breaking_proxy
from tests.web.browser_tab import Person, Tab
from tests.web.web_agents import bursting, counting, spelling

# The page sees HTTP only: the engine behind the server cannot matter to it.
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
    """Leave a sign in the document that a reload would wipe away."""
    tab.page.evaluate("document.body.dataset.same = 'yes'")


def is_same(tab: Tab) -> bool:
    """Whether it is the document in which the sign was left."""
    return bool(tab.page.evaluate("document.body.dataset.same === 'yes'"))


def enough(client: httpx2.Client, session: str) -> None:
    """Have the counting end."""
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
        live = tab.story()
        assert is_same(tab)
        stored = [text_of(message) for message in read(client, session)]
        shown = tab.turns.nth(1).locator(".markdown").inner_text().split()
        assert shown == stored[3].split() == [str(number) for number in range(1, len(shown) + 1)]
        assert stored.count("said while the server is dead") == 1

        tab.page.reload()
        expect(tab.turns).to_have_count(3)
        assert tab.story() == live


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


def workers_of(served: ServerProcess) -> list[int]:
    """The processes that the supervisor has started."""
    children = Path(f"/proc/{served.pid}/task/{served.pid}/children").read_text().split()
    return [int(child) for child in children]


# --- the network -----------------------------------------------------------------------------------------------------

# Within the headers, within a frame, between two; and the longer ones after much was told.
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


def test_a_page_that_is_offline_for_a_while_catches_up_by_itself(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    tab = person.tab(session)
    accepted(client, session, "count", agent="counting")
    until_counted(tab, 5)
    mark(tab)

    tab.page.context.set_offline(True)
    expect(tab.connection).to_have_text("Reconnecting…")
    before = len(counted(tab))
    until(lambda: said_so_far(client, session) > before + 50, "much is said meanwhile")
    assert len(counted(tab)) == before
    tab.page.context.set_offline(False)
    expect(tab.connection).to_have_text("Live")
    until_counted(tab, before + 50)
    enough(client, session)

    until_settled(tab)
    expect(tab.page.locator(".banner.recovered")).to_contain_text("Reconnected.")
    assert is_same(tab)
    assert counted(tab) == [int(word) for word in text_of(read(client, session)[1]).split()]


def said_so_far(client: httpx2.Client, session: str) -> int:
    """How many numbers the running answer has come to."""
    said = client.get(f"/api/sessions/{session}/snapshot").json()["said"]
    return sum(len(text_of(message).split()) for message in said)


def test_a_slow_line_shows_the_same_story_later(person: Person, client: httpx2.Client) -> None:
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
    assert slow.story() == quick.story()
    assert counted(slow) == [int(word) for word in text_of(read(client, session)[5]).split()]


# --- the tab ---------------------------------------------------------------------------------------------------------


def test_two_tabs_and_a_telephone_stay_in_step(browser: Browser, person: Person, client: httpx2.Client) -> None:
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
        stories = {tab.story() for tab in (one, two, phone)}
        assert len(stories) == 1
        shown = one.turns.first.locator(".markdown").inner_text()
        assert [int(word) for word in shown.split()] == [
            int(word) for word in text_of(read(client, session)[1]).split()
        ]


def words(text: str) -> str:
    """How a waiting message is listed."""
    return f"queued{text}"


def test_a_page_reloaded_at_ten_moments_of_an_answer_always_shows_the_same(
    person: Person, client: httpx2.Client
) -> None:
    session = new_session(client)
    accepted(client, session, "a long story", agent="patient")
    still, reloaded = person.tab(session), person.tab(session)
    for moment in range(10):
        client.post(f"/api/sessions/{session}/steer", json={"text": f"remark {moment}"})
        for tab in (still, reloaded):
            expect(tab.answers.last).to_contain_text(f"heard remark {moment}")
        before = reloaded.story()
        reloaded.page.reload()
        expect(reloaded.answers.last).to_contain_text(f"heard remark {moment}")
        assert reloaded.story() == before == still.story()
    enough(client, session)

    for tab in (still, reloaded):
        until_settled(tab)
    ended = reloaded.story()
    reloaded.page.reload()
    until_settled(reloaded)
    assert reloaded.story() == ended == still.story()


def test_an_answer_that_comes_in_one_breath_is_drawn_to_its_last_word(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    tab = person.tab(session)
    tab.page.context.set_offline(True)
    expect(tab.connection).to_have_text("Reconnecting…")
    answered(client, session, "all of them", agent="bursting")

    # Everything is told at once, and nothing comes after it that would show a gap.
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
