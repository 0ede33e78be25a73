"""The lineage as a picture: windows and forks, each of which can be opened."""

import httpx2
import pytest
from playwright.sync_api import Route, expect

from backstay.model import message
from backstay.model.ids import SessionId, WindowId
from backstay.store import Store, open_store
from tests.server.api_calls import new_session
from tests.server.running_server import RunningServer
from tests.web.browser_tab import Person
from tests.web.modules.node_tests import needs_node, passes

# The page uses HTTP only, so the engine behind the server cannot matter.
pytestmark = pytest.mark.engines("sqlite")

ME = "local"


def _talk_and_summarise(store: Store, session: SessionId) -> WindowId:
    """Three turns, of which the first two are summarised; returns the window in which they were written."""
    for number in range(3):
        store.record(session, [message.user(f"entry {number}"), message.assistant("noted")], owner=ME)
    parent = store.session(session, owner=ME).window
    store.rotate(session, [message.summary("in short")], owner=ME, parent=parent, keep_from=4)
    return parent


def test_a_click_in_the_lineage_opens_that_window_the_summarised_part_or_the_fork(
    person: Person, server: RunningServer, client: httpx2.Client
) -> None:
    session = SessionId(new_session(client))
    with open_store(server.settings.db) as store:
        _talk_and_summarise(store, session)
        fork = store.fork(session, owner=ME)
        store.record(session, [message.user("entry 3"), message.assistant("noted")], owner=ME)
        store.undo(session, owner=ME)
    tab = person.tab(session, "lineage")
    asked = tab.page.locator(".asked")

    expect(tab.page.locator(".graph li strong")).to_have_text(["Undo", "Fork", "Summarised", "Started"])
    expect(tab.page.locator(".graph li", has_text="Summarised")).to_contain_text("4 messages before it")
    tab.page.locator(".node.compaction").click()
    expect(asked).to_contain_text(["entry 2", "entry 3"])
    expect(tab.page.locator(".banner.past")).to_contain_text("summarised")
    tab.button("Lineage").click()
    tab.button("Read the summarised messages").click()
    expect(asked).to_have_text(["entry 0", "entry 1"])
    tab.button("Back to now").click()
    tab.button("Lineage").click()
    tab.page.locator(".node.away").click()
    expect(tab.page.locator(".head .badge", has_text="fork")).to_be_visible()
    assert tab.session == fork.id
    expect(asked).to_have_text(
        ["entry 0", "entry 1", "entry 2"]
    )  # Also the messages before the summary, in another window.


def test_a_late_response_with_older_messages_is_dropped_after_a_move(
    person: Person, server: RunningServer, client: httpx2.Client
) -> None:
    session = SessionId(new_session(client))
    with open_store(server.settings.db) as store:
        parent = _talk_and_summarise(store, session)
    tab = person.tab(session, "lineage")
    asked = tab.page.locator(".asked")
    late: list[Route] = []

    def hold_the_first(route: Route) -> None:
        if late:
            route.continue_()
        else:
            late.append(route)

    tab.page.locator(".graph li").first.wait_for()
    tab.page.route(f"**/snapshot?window={parent}*", hold_the_first)
    tab.page.locator(".node.compaction").click()
    expect(asked).to_have_text(["entry 2"])
    tab.button("Lineage").click()
    tab.button("Read the summarised messages").click()
    expect(asked).to_have_text(["entry 0", "entry 1"])

    with tab.page.expect_response(lambda answer: answer.request == late[0].request):
        late[0].continue_()
    tab.page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    expect(asked).to_have_text(["entry 0", "entry 1"])


@needs_node
def test_windows_and_forks_are_in_the_order_of_their_opening() -> None:
    passes("lineage.test.mjs", 3)
