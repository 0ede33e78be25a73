"""Durations of tools: shown as they return, and the same after a reload."""

import httpx2
import pytest
from playwright.sync_api import expect

from backstay.model.content import Text, ToolCall, ToolResult
from backstay.model.ids import SessionId
from backstay.model.turn import Completed, Interrupted
from backstay.store import open_store
from tests.server.api_calls import new_session
from tests.server.running_server import RunningServer
from tests.web.browser_tab import Person

# The page uses HTTP only, so the engine behind the server cannot matter.
pytestmark = pytest.mark.engines("sqlite")

ME = "local"


def test_a_tool_row_shows_the_same_duration_live_and_after_a_reload(
    person: Person, server: RunningServer, client: httpx2.Client
) -> None:
    session = new_session(client)
    tab = person.tab(session)
    times, states = tab.page.locator(".fold-time"), tab.page.locator(".fold-state")
    with open_store(server.settings.db) as store:
        proof = store.submit(SessionId(session), "look", owner=ME, agent="elsewhere", start=True).opened
        assert proof is not None
        calls = [ToolCall("c1", "look"), ToolCall("c2", "pay"), ToolCall("c3", "mail", approval=True)]
        proof = store.checkpoint(proof, calls).open
        expect(states).to_have_text(["running…", "running…", "needs approval"])
        expect(times).to_have_count(0)
        store.approve(proof.id, "c3", owner=ME)
        proof = store.checkpoint(
            proof, [ToolResult("c1", "seen"), ToolResult("c3", "no such address", error=True)]
        ).open
        expect(states).to_have_text(["done", "running…", "failed"])
        expect(times).to_have_count(2)
        store.finish(proof, Interrupted("its process died"))
        expect(states).to_have_text(["done", "may have run", "failed"])
        interrupted = tab.transcript()
        tab.page.reload()
        expect(times).to_have_count(2)
        assert tab.transcript() == interrupted
        again = store.resume(proof.id, owner=ME)
        again = store.checkpoint(again, [ToolCall("c1", "pay", idempotent=True)], repeats={"c1": 1}).open
        store.finish(again, Completed(), bodies=[ToolResult("c1", "paid"), Text("All done.")])
    expect(states).to_have_text(["done", "repeated later", "failed", "done"])
    expect(times).to_have_count(3)
    expect(tab.last.locator(".tools")).to_be_attached()
    live = tab.transcript()
    tab.page.reload()
    expect(tab.last).to_contain_text("All done.")
    assert tab.transcript() == live


def test_a_person_lets_a_call_that_may_have_run_be_made_again(
    person: Person, server: RunningServer, client: httpx2.Client
) -> None:
    session = new_session(client)
    tab = person.tab(session)
    states = tab.page.locator(".fold-state")
    with open_store(server.settings.db) as store:
        proof = store.submit(SessionId(session), "pay", owner=ME, agent="elsewhere", start=True).opened
        assert proof is not None
        proof = store.checkpoint(proof, [ToolCall("c1", "pay", {"amount": 5})]).open
        store.finish(proof, Interrupted("its process died"))
        expect(states).to_have_text(["may have run"])
        allow = tab.page.get_by_role("button", name="Allow pay again")
        allow.click()
        expect(allow).to_have_count(0)
        (line,) = store.calls(proof.id, owner=ME)
        assert (line.effect, line.run_again) == ("unknown", "approved")
        live = tab.transcript()
        tab.page.reload()
        expect(states).to_have_text(["may have run"])
        expect(allow).to_have_count(0)
        assert tab.transcript() == live
