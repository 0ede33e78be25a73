"""A message far back: opened in place, with scrolling in both directions, and live again at the end."""

import httpx2
import pytest
from playwright.sync_api import Locator, expect

from backstay.model import message
from backstay.model.ids import SessionId
from backstay.store import open_store
from tests.server.api_calls import accepted, answered, new_session, until
from tests.server.running_server import RunningServer
from tests.web.browser_tab import Person, Tab

# The page uses HTTP only, so the engine behind the server cannot matter.
pytestmark = pytest.mark.engines("sqlite")

ME = "local"
# Scrolls to the last loaded turn; returns its id, its position, and the number of turns.
TO_WHAT_IS_HERE = """box => {
    box.scrollTop = box.scrollHeight;
    const turns = [...box.querySelectorAll(".turn")];
    return [turns.at(-1).dataset.turn, turns.at(-1).getBoundingClientRect().top, turns.length];
}"""
# Holds the next page of earlier messages until it is released, and then delivers it at once.
HOLD_WHAT_IS_ABOVE = """() => {
    const real = window.fetch;
    window.fetch = async (url, options) => {
        const answer = await real(url, options);
        if (!url.includes("before=")) return answer;
        const value = await answer.json();
        await new Promise((resolve) => (window.release = resolve));
        return { ok: true, status: 200, json: async () => value };
    };
}"""
# Scrolls at the moment of its release: the browser reports scrolling later than the page draws.
SCROLL_AS_IT_COMES = """box => new Promise((resolve) => requestAnimationFrame(() => {
    box.scrollTop = 2000;
    const turn = box.querySelectorAll(".turn")[14];
    window.release();
    resolve([turn.dataset.turn, turn.getBoundingClientRect().top]);
}))"""


def long_session(server: RunningServer, client: httpx2.Client) -> str:
    """A session with 400 messages, a compaction among them, and one walrus near its beginning."""
    session = new_session(client)
    with open_store(server.settings.db) as store:
        for number in range(200):
            words = "the walrus speaks" if number == 20 else f"answer {number}"
            said = [message.user(f"entry {number}"), message.assistant(words)]
            store.record(SessionId(session), said, owner=ME)
            if number == 60:
                window = store.session(SessionId(session), owner=ME).window
                store.rotate(SessionId(session), [message.summary("so far")], owner=ME, parent=window, keep_from=100)
        store.index()
    return session


def place_of(shown: Locator) -> float:
    box = shown.bounding_box()
    assert box is not None
    return box["y"]


def read_down(tab: Tab, shown: Locator, screens: float = 0.5) -> bool:
    """Scroll down; returns whether this text is on the page now."""
    tab.page.locator(".scroller").evaluate("(box, by) => { box.scrollTop += by * box.clientHeight }", screens)
    return shown.count() > 0


def test_a_message_far_back_is_read_on_to_the_live_end_without_jumps(
    person: Person, server: RunningServer, client: httpx2.Client
) -> None:
    session = long_session(server, client)
    tab = person.tab(session)
    expect(tab.page.get_by_text("entry 199", exact=True)).to_be_in_viewport()

    tab.page.keyboard.press("Control+k")
    tab.page.get_by_role("combobox", name="Search").fill("walrus")
    tab.page.locator(".hits li", has=tab.page.locator(".snippet")).first.click()
    walrus = tab.page.get_by_text("the walrus speaks", exact=True)
    expect(walrus).to_be_in_viewport()
    assert tab.page.evaluate("[...CSS.highlights.get('found')].map(String)") == ["walrus"]
    expect(tab.message).to_be_visible()
    expect(tab.page.get_by_text("entry 199", exact=True)).to_have_count(0)

    for _ in range(2):
        turn, place, count = tab.page.locator(".scroller").evaluate(TO_WHAT_IS_HERE)
        until(lambda: tab.turns.count() > count, "more comes below what is read")  # noqa: B023  # asked at once
        assert abs(place_of(tab.page.locator(f"[data-turn={turn}]")) - place) <= 2, "what is read stays where it is"

    live = accepted(client, session, "meanwhile", agent="patient")
    latest = tab.page.get_by_text("meanwhile", exact=True)
    until(lambda: read_down(tab, latest, 1.5), "the end is reached")
    until(lambda: read_down(tab, latest, 5) and tab.button("Jump to latest").count() == 0, "the end is live")
    assert [int(text.split()[1]) for text in tab.page.locator(".asked").all_inner_texts()[-190:-1]] == list(
        range(11, 200)
    )
    client.post(f"/api/sessions/{session}/steer", json={"text": "enough"})
    expect(tab.answers.last).to_contain_text("heard enough")
    expect(tab.last.locator(".tools")).to_be_attached()
    assert client.get(f"/api/turns/{live}").json()["outcome"]["type"] == "completed"


def test_sending_or_going_back_from_older_messages_returns_to_the_end(
    person: Person, server: RunningServer, client: httpx2.Client
) -> None:
    session = long_session(server, client)
    another = new_session(client)
    answered(client, another, "unrelated")
    tab = person.tab(another)

    def find() -> None:
        tab.page.keyboard.press("Control+k")
        tab.page.get_by_role("combobox", name="Search").fill("walrus")
        tab.page.locator(".hits li", has=tab.page.locator(".snippet")).first.click()
        expect(tab.page.get_by_text("the walrus speaks", exact=True)).to_be_in_viewport()

    find()
    assert tab.session == session
    tab.button("Jump to latest").click()
    expect(tab.page.get_by_text("entry 199", exact=True)).to_be_in_viewport()
    find()
    tab.say("hello from far above")
    expect(tab.last).to_contain_text("hello from far above")
    expect(tab.last).to_be_in_viewport()
    find()
    tab.turns.first.get_by_role("button", name="Fork from here").click()
    expect(tab.page.locator(".head .badge", has_text="fork")).to_be_visible()
    expect(tab.last.locator(".asked")).to_have_text("entry 6")


def test_messages_inserted_above_do_not_move_a_reader_who_scrolls(
    person: Person, server: RunningServer, client: httpx2.Client
) -> None:
    tab = person.tab(long_session(server, client))
    expect(tab.page.get_by_text("entry 199", exact=True)).to_be_in_viewport()
    count = tab.turns.count()
    tab.page.evaluate(HOLD_WHAT_IS_ABOVE)
    tab.page.locator(".scroller").evaluate("box => { box.scrollTop = 0 }")
    tab.page.wait_for_function("() => window.release")

    turn, place = tab.page.locator(".scroller").evaluate(SCROLL_AS_IT_COMES)
    until(lambda: tab.turns.count() > count, "what is above comes")
    assert abs(place_of(tab.page.locator(f"[data-turn={turn}]")) - place) <= 2
