"""Changes elsewhere while the web UI is open, and links to missing data.

None of this depends on the engine, so each test runs once.
"""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, expect

from backstay.agents.adapters import AgentLike
from backstay.agents.scripted.scripted_agent import ScriptedAgent
from tests.server.agents import echo, patient
from tests.server.api_calls import answered, new_session
from tests.server.running_server import RunningServer, run_server
from tests.web.browser_tab import Person

# An id that does not exist.
NOBODYS = "01hzxabcdefghjkmnpqrstvwxy"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    agents: dict[str, AgentLike] = {"default": ScriptedAgent(), "patient": patient}
    with run_server(tmp_path / "chat.db", agents) as server:
        yield server


def test_a_session_that_could_not_be_opened_opens_when_the_server_is_back(
    person: Person, client: httpx2.Client
) -> None:
    here, there = new_session(client), new_session(client)
    answered(client, there, "hello")
    tab = person.tab(here)
    tab.page.context.set_offline(True)
    tab.page.evaluate("session => (location.hash = session)", there)
    expect(tab.page.get_by_role("heading", name="This session can't be opened")).to_be_visible()

    tab.page.context.set_offline(False)
    expect(tab.turns).to_have_count(1)


def test_a_link_to_a_message_that_is_gone_opens_its_session(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    answered(client, session, "hello")
    tab = person.tab(session, f"at/msg_{NOBODYS}")
    expect(tab.turns).to_have_count(1)
    expect(tab.page.locator(".notice")).to_contain_text(NOBODYS)

    tab.go(f"ses_{NOBODYS}")
    expect(tab.page.get_by_role("heading", name="Session not found")).to_be_visible()


def test_the_lineage_is_left_for_a_search_hit_and_returned_to(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    for text in ("the walrus sings", "and sleeps"):
        answered(client, session, text)
    client.post(f"/api/sessions/{session}/undo")
    client.patch(f"/api/sessions/{session}", json={"title": "Animals"})
    tab = person.tab(session, "lineage")
    earlier = tab.page.get_by_text("Earlier version (")
    tab.page.get_by_role("button", name="Started").click()
    expect(earlier).to_be_visible()
    tab.page.go_back()
    expect(tab.page.get_by_role("region", name="Lineage")).to_be_visible()
    expect(earlier).to_have_count(0)

    tab.page.keyboard.press("Control+k")
    tab.page.get_by_role("combobox", name="Search").fill("walrus")
    tab.page.locator(".snippet").first.click()
    expect(tab.turns).to_have_count(1)


def test_a_session_deleted_elsewhere_is_shown_as_deleted(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    answered(client, session, "hello")
    tab = person.tab(session)
    client.delete(f"/api/sessions/{session}")
    expect(tab.page.locator(".closed")).to_have_text("This session was deleted. This view closes when you leave.")
    expect(tab.message).to_be_disabled()


def test_a_browser_signed_out_elsewhere_shows_it_and_continues_after_sign_in(
    browser: Browser, person: Person, client: httpx2.Client
) -> None:
    session = new_session(client)
    tab = person.tab(session)
    for token in client.get("/api/tokens").json()["tokens"]:
        if token["kind"] == "browser":
            client.delete(f"/api/tokens/{token['id']}")
    tab.message.fill("what I wrote")
    tab.message.press("Enter")
    expect(tab.connection).to_have_text("Signed out")
    expect(tab.page.locator(".banner")).to_contain_text("This browser is no longer signed in.")
    expect(tab.message).to_have_value("what I wrote")

    person.sign_in()
    tab.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(tab.connection).to_have_text("Live")
    tab.message.press("Enter")
    expect(tab.last.locator(".answer")).to_contain_text("what I wrote")


def test_the_agents_of_a_restarted_server_are_shown(
    person: Person, client: httpx2.Client, server: RunningServer
) -> None:
    session = new_session(client)
    answered(client, session, "hello")
    tab = person.tab(session)
    expect(tab.who).to_have_value("default")
    server.stop()
    expect(tab.connection).to_have_text("Reconnecting…")
    with run_server(server.place, {"solo": echo, "duet": echo}, port=server.port):
        expect(tab.who).to_have_value("solo")
        tab.ask("who is here now")
        expect(tab.last.locator(".who .name")).to_have_text("solo")
        # Another client named an agent that is not served.
        client.post(f"/api/sessions/{session}/turns", json={"text": "are you there", "agent": "default"})
        expect(tab.queue).to_contain_text("waits for default")
