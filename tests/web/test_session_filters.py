"""The list filtered by agent, workspace or platform on the server, beyond the loaded pages."""

import httpx2
import pytest
from playwright.sync_api import expect

from tests.server.api_calls import accepted, answered, new_session
from tests.web.browser_tab import Person

# The page uses HTTP only, so the engine behind the server cannot matter.
pytestmark = pytest.mark.engines("sqlite")


def test_the_list_filters_by_agent_or_place_beyond_the_loaded_pages(person: Person, client: httpx2.Client) -> None:
    far = client.post("/api/sessions", json={"address": "chat://telegram/dm/42"}).json()["id"]
    answered(client, far, "from a telephone")
    patient = new_session(client)
    accepted(client, patient, "take your time", agent="patient")
    for number in range(60):
        client.patch(f"/api/sessions/{new_session(client)}", json={"title": f"Session {number}"})
    tab = person.tab()
    lines = tab.page.locator(".session-row")
    expect(tab.page.locator(".session-row", has_text="Session 59")).to_be_visible()

    tab.page.get_by_label("Agent", exact=True).select_option("patient")
    expect(lines).to_have_count(1)
    expect(lines).to_contain_text("take your time")
    tab.page.get_by_label("Agent", exact=True).select_option("default")
    expect(lines).to_have_count(1)
    expect(lines).to_contain_text("from a telephone")
    tab.page.get_by_label("Workspace or platform").select_option("telegram")
    expect(lines).to_have_count(1)
    accepted(client, far, "over to you", agent="patient")
    expect(lines).to_have_count(0)
    tab.page.get_by_label("Agent", exact=True).select_option("patient")
    expect(lines).to_have_count(1)
    tab.page.get_by_label("Agent", exact=True).select_option("Any agent")
    tab.page.get_by_label("Workspace or platform").select_option("Anywhere")
    expect(tab.page.locator(".session-row", has_text="Session 59")).to_be_visible()
