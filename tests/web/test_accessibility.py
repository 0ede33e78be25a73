"""Appearance of the page, its use with a keyboard or a screen reader, and its size.

None of this depends on the engine, so each test runs once.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, Request, expect

from backstay.agents.adapters import AgentLike
from backstay.agents.scripted.scripted_agent import ScriptedAgent
from tests.effort import THOROUGH
from tests.server.agents import patient
from tests.server.api_calls import accepted, answered, new_session
from tests.server.running_server import RunningServer, run_server
from tests.web.browser_tab import Person, Tab
from tests.web.hostile.hostile_agents import hostile

AXE = Path(__file__).with_name("axe.min.js")
MOST_BYTES = 150 * 1024
LAZY = "/static/vendor/colours.js"
# Dark or light, on a phone or a desktop; the first two cover each of these once.
LOOKS = {
    "light-desk": (False, False),
    "dark-phone": (True, True),
    "dark-desk": (True, False),
    "light-phone": (False, True),
}
SHOWN = LOOKS if THOROUGH else dict(list(LOOKS.items())[:2])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    agents: dict[str, AgentLike] = {
        "default": ScriptedAgent(pace=0.01, slow=0.05),
        "hostile": hostile,
        "patient": patient,
    }
    with run_server(tmp_path / "chat.db", agents, demo=True) as server:
        yield server


# --- accessibility --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dark", "phone"), SHOWN.values(), ids=SHOWN)
def test_axe_finds_no_serious_problem(browser: Browser, client: httpx2.Client, dark: bool, phone: bool) -> None:
    session = a_session_with_everything(client)
    busy = a_busy_session(client)
    with Person(browser, client, dark=dark, phone=phone) as person:
        tab = person.tab()
        assert faults(tab) == [], "the welcome"
        if phone:
            tab.button("Show the list of sessions").tap()
            assert faults(tab) == [], "the list on a telephone"
            tab.button("Close the list").tap()
        tab.go(busy)
        expect(tab.queue).to_have_count(2)
        assert faults(tab) == [], "a running answer and what waits behind it"
        tab.go(session)
        expect(tab.page.locator("details.summary")).to_be_visible()
        expect(tab.last.locator(".fold-line")).to_have_count(15)
        tab.page.locator(".fold-line").evaluate_all("folds => folds.forEach(fold => fold.click())")
        assert faults(tab) == [], "a conversation with everything unfolded"
        tab.message.fill("/")
        expect(tab.page.locator("#offered")).to_be_visible()
        assert faults(tab) == [], "commands"
        tab.message.fill("")
        for name, show in VIEWS.items():
            show(tab)
            assert faults(tab) == [], name


def a_session_with_everything(client: httpx2.Client) -> str:
    """Answers, thoughts, tools, a failure, hostile text, a summary, another window."""
    session = new_session(client)
    client.patch(f"/api/sessions/{session}", json={"title": "Everything", "add_tags": ["kitchen"], "pinned": True})
    for text in ("A plan for Saturday", "calc 3*15"):
        answered(client, session, text)
    compacted = client.post(f"/api/sessions/{session}/compact", json={"keep": 0})
    assert compacted.status_code < 300, compacted.text
    answered(client, session, "think first\ncalc 6*7\ncalc 1/0\nusage\n# Not a title\nhello")
    answered(client, session, "fail on purpose")
    answered(client, session, "few", agent="hostile")
    return session


def a_busy_session(client: httpx2.Client) -> str:
    """A running answer, and two waiting messages."""
    session = new_session(client)
    accepted(client, session, "a long story", agent="patient")
    for text in ("next", "then"):
        accepted(client, session, text)
    return session


def dialog(name: str, key: str) -> Callable[[Tab], None]:
    """Opens a dialog with a key."""

    def show(tab: Tab) -> None:
        tab.page.keyboard.press("Escape")
        tab.page.locator(".scroller").focus()
        tab.page.keyboard.press(key)
        expect(tab.page.get_by_role("dialog", name=name)).to_be_visible()

    return show


def found(tab: Tab) -> None:
    """A search with results."""
    dialog("Search", "Control+k")(tab)
    tab.page.get_by_role("combobox", name="Search").fill("hello")
    expect(tab.page.locator(".snippet").first).to_be_visible()


def tags(tab: Tab) -> None:
    """The tags of a session."""
    tab.page.keyboard.press("Escape")
    tab.choose("Tags…")
    expect(tab.page.get_by_role("dialog", name="Tags")).to_be_visible()


def menu(tab: Tab) -> None:
    """The menu of a session."""
    tab.page.keyboard.press("Escape")
    tab.button("More").click()
    expect(tab.page.get_by_role("menu")).to_be_visible()


def editing(tab: Tab) -> None:
    """A message that is being edited."""
    tab.page.keyboard.press("Escape")
    tab.message.press("ArrowUp")
    expect(tab.page.get_by_role("textbox", name="Your message")).to_be_visible()


def lineage(tab: Tab) -> None:
    """The lineage of a session."""
    tab.button("Lineage").click()
    expect(tab.page.locator(".graph")).to_be_visible()


def before(tab: Tab) -> None:
    """The summarised messages, with their banner."""
    tab.button("Read the summarised messages").click()
    expect(tab.page.locator(".banner.past")).to_be_visible()


def settings(tab: Tab) -> None:
    """The settings; opened from the list, which a phone shows first."""
    tab.button("Back to now").click()
    narrow = tab.button("Show the list of sessions")
    if narrow.is_visible():
        narrow.click()
    tab.page.locator(".sidebar footer .wide").click()
    expect(tab.page.get_by_role("dialog", name="Settings")).to_be_visible()


def refused(tab: Tab) -> None:
    """A notice, and an unreachable server."""
    tab.page.keyboard.press("Escape")
    tab.page.context.set_offline(True)
    expect(tab.page.locator(".banner.lost")).to_be_visible()


VIEWS = {
    "help": dialog("Help", "?"),
    "search": found,
    "tags": tags,
    "the menu": menu,
    "editing": editing,
    "lineage": lineage,
    "the past": before,
    "settings": settings,
    "no connection": refused,
}


def faults(tab: Tab) -> list[dict[str, Any]]:
    """The serious findings of axe."""
    if not tab.page.evaluate("typeof axe === 'object'"):
        tab.page.evaluate(AXE.read_text())
    found = tab.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        {"rule": one["id"], "where": [node["html"][:200] for node in one["nodes"]][:3]}
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def test_a_screen_reader_announces_an_answer_once_and_not_each_word(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    tab = person.tab(session)
    tab.ask("first")
    tab.page.evaluate("""() => {
        window.announced = [];
        const watching = {childList: true, characterData: true, subtree: true};
        for (const region of document.querySelectorAll("[aria-live], [role=status], [role=alert], [role=log]")) {
            new MutationObserver(() => window.announced.push(region.textContent)).observe(region, watching);
        }
    }""")

    tab.ask("slow 12")

    expect(tab.page.locator(".scroller [aria-live]")).to_contain_text("Answer: 1 of 12")
    announced = tab.page.evaluate("window.announced")
    assert len([words for words in announced if "1 of 12" in words]) == 1, announced
    assert len(announced) < 12, announced
    assert tab.answers.locator("[aria-live]").count() == 0, "the words themselves are in no live region"


@pytest.mark.parametrize("still", [True, False], ids=["still", "moving"])
def test_with_reduced_motion_nothing_moves(browser: Browser, client: httpx2.Client, still: bool) -> None:
    busy = a_busy_session(client)
    with Person(browser, client, still=still) as person:
        tab = person.tab(busy)
        expect(tab.page.locator(".typing")).to_be_visible()
        expect(tab.page.get_by_role("img", name="Running")).to_be_visible()

        tab.page.wait_for_function(
            "still => document.getAnimations().filter(one => one.playState === 'running').length === 0 === still",
            arg=still,
        )


# --- size -----------------------------------------------------------------------------------------------------------


def test_the_web_ui_loads_little_before_its_lazy_parts(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    asked: list[Request] = []
    tab = person.tab()
    tab.page.on("requestfinished", lambda request: asked.append(request))  # noqa: PLW0108  # it must be a function
    tab.go(session)
    tab.page.reload()
    expect(tab.message).to_be_visible()
    paths = {httpx2.URL(request.url).path for request in asked}
    parts = {path for path in paths if path == "/" or path.startswith("/static/")}
    packed = {"accept-encoding": "gzip"}

    sizes = {path: int(client.get(path, headers=packed).headers["content-length"]) for path in parts}

    assert {"/", "/static/app/main.js", "/static/vendor/page.js"} <= parts
    assert LAZY not in parts
    assert sum(sizes.values()) <= MOST_BYTES, sizes
    whole = sum(len(client.get(path).content) for path in parts)
    assert whole > 2 * sum(sizes.values()), "it is weighed as it travels"


def test_files_are_compressed_and_have_an_etag(client: httpx2.Client) -> None:
    first = client.get("/static/app/main.js")
    again = client.get("/static/app/main.js", headers={"if-none-match": first.headers["etag"]})
    plain = client.get("/static/app/main.js", headers={"accept-encoding": "identity"})

    assert first.headers["content-encoding"] == "gzip"
    assert first.headers["content-type"] == "text/javascript; charset=utf-8"
    assert (again.status_code, again.content) == (304, b"")
    assert plain.content == first.content
    assert "content-encoding" not in plain.headers


STRANGE = "../app.py|..%2fapp.py|app/../../app.py|app|app/||/etc/passwd|app//main.js|app/main.js/|%00".split("|")


def test_nothing_but_our_own_files_is_served(client: httpx2.Client) -> None:
    assert {path: client.get(f"/static/{path}").status_code for path in STRANGE} == dict.fromkeys(STRANGE, 404)
