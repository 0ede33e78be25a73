"""The page with hostile text, under its own policy."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Request, expect

from backstay.agents.scripted.scripted_agent import ScriptedAgent
from tests.cli.forked_command import PATIENCE
from tests.databases import Place
from tests.server.api_calls import accepted, answered, new_session, until
from tests.server.running_server import RunningServer, run_server
from tests.server.server_process import COMMAND
from tests.web.browser_tab import Person, Tab
from tests.web.hostile.hostile_agents import AGENTS, furnish, with_files
from tests.web.hostile.hostile_text import PAYLOADS

# The page uses HTTP only, so the engine behind the server cannot matter.
pytestmark = pytest.mark.engines("sqlite")


@pytest.fixture
def server(place: Place) -> Iterator[RunningServer]:
    with run_server(place, {"default": ScriptedAgent(pace=0.01, slow=0.05), **AGENTS}, titles=True) as server:
        yield server


def test_hostile_text_is_shown_as_text_everywhere(person: Person, client: httpx2.Client) -> None:
    assert len(PAYLOADS) >= 30
    session = new_session(client)
    client.patch(f"/api/sessions/{session}", json={"title": " ".join(PAYLOADS)[:1000], "add_tags": [PAYLOADS[1]]})
    answered(client, session, "fail: " + "\n".join(PAYLOADS), agent="hostile")
    client.put(f"/api/sessions/{session}/draft", json={"text": PAYLOADS[0]})
    tab = person.tab()
    strangers = watched(tab)
    tab.go(session)
    expect(tab.last.locator(".ending.failed")).to_contain_text("onerror")

    until(lambda: everything(tab) == 3 * len(PAYLOADS), "all of it is loaded")
    tab.last.locator(".fold-line").evaluate_all("folds => folds.forEach(fold => fold.click())")
    expect(tab.last.locator(".fold-body")).to_have_count(3 * len(PAYLOADS))
    links = tab.last.locator(".markdown a").evaluate_all("links => links.map(link => link.getAttribute('href'))")
    assert links
    assert [link for link in links if not link.startswith(("http://", "https://", "mailto:"))] == []
    tab.page.keyboard.press("Control+k")
    tab.page.get_by_role("combobox", name="Search").fill("onerror")
    expect(tab.page.locator(".snippet").first).to_be_visible()
    tab.page.keyboard.press("Escape")

    harmless(tab)
    assert strangers == []
    assert tab.last.locator(".markdown").count() >= len(PAYLOADS)


def test_hostile_names_are_shown_as_text_everywhere(person: Person, client: httpx2.Client) -> None:
    furnished = furnish(client)
    tab = person.tab()
    strangers = watched(tab)
    count = len(PAYLOADS)
    expect(tab.page.locator(".session-row").first).to_be_visible()
    for name in ("Agent", "Workspace or platform", "Tag"):
        until(lambda: all_choices(tab, name) >= {*PAYLOADS}, "all lines are loaded")  # noqa: B023  # asked at once
    harmless(tab)

    tab.go(furnished.said)
    expect(tab.page.locator(".asked .chip")).to_have_count(count)
    until(lambda: everything(tab, ".ending.failed") == count, "all of it is loaded")
    expect(tab.page.locator("details.summary")).to_contain_text("<script>window.hacked=1<")
    expect(tab.page.locator(".who .name", has_text="onerror").first).to_be_attached()
    expect(tab.page.get_by_role("combobox", name="Agent for this message").locator("option")).to_have_count(count + 3)
    for payload in PAYLOADS:
        tab.message.fill(payload)
    harmless(tab)
    tab.button("Lineage").click()
    expect(tab.page.locator(".graph li", has_text="Continues as")).to_have_count(count)
    harmless(tab)
    tab.go(furnished.fork, "lineage")
    expect(tab.page.locator(".title .badge")).to_have_count(2)
    harmless(tab)

    tab.go(furnished.waiting)
    expect(tab.queue).to_have_count(count)
    harmless(tab)
    tab.choose("Tags…")
    expect(tab.page.get_by_role("dialog", name="Tags").locator(".chip")).to_have_count(count)
    harmless(tab)
    tab.page.keyboard.press("Escape")
    tab.page.keyboard.press("Control+k")
    for query in (*PAYLOADS, "hacked"):
        tab.page.get_by_role("combobox", name="Search").fill(query)
    expect(tab.page.locator(".snippet mark").first).to_be_visible()
    harmless(tab)
    tab.page.keyboard.press("Escape")
    tab.page.locator(".sidebar footer .wide").click()
    expect(tab.page.get_by_role("dialog", name="Settings").get_by_role("button", name="Revoke")).not_to_have_count(0)
    expect(tab.page.get_by_role("dialog", name="Settings").locator("li", has_text="Revoke")).to_have_count(
        len(client.get("/api/tokens").json()["tokens"])
    )
    harmless(tab)
    assert strangers == []


def test_hostile_text_does_nothing_in_an_exported_page(
    person: Person, server: RunningServer, client: httpx2.Client, tmp_path: Path
) -> None:
    furnished = furnish(client)
    answered(client, furnished.fork, "all", agent="hostile")
    tab = person.tab()
    strangers = watched(tab)

    for session in furnished:
        page = tmp_path / f"{session}.html"
        exported = [str(COMMAND), "export", session, "--db", str(server.place), "--format", "html", "-o", str(page)]
        subprocess.run(exported, check=True, timeout=PATIENCE, capture_output=True, cwd=tmp_path)
        tab.page.goto(page.as_uri())
        expect(tab.page.locator("article, body").first).to_contain_text("wait" if session == furnished.waiting else "<")
        inert(tab)
    assert strangers == []


def all_choices(tab: Tab, name: str) -> set[str]:
    """Scroll to the end of the list; returns the available filters."""
    tab.page.locator(".list").evaluate("box => box.scrollTop = box.scrollHeight")
    choices = tab.page.get_by_role("combobox", name=name, exact=True).locator("option")
    return set(choices.evaluate_all("all => all.map(one => one.textContent)"))


def watched(tab: Tab) -> list[str]:
    """Collects requests of the tab to other servers than ours."""
    strangers: list[str] = []
    root = tab.page.url.partition("#")[0]

    def look(request: Request) -> None:
        if not request.url.startswith((root, "file:", "data:")):
            strangers.append(request.url)

    tab.page.on("request", look)
    return strangers


def harmless(tab: Tab) -> None:
    """Check that the page has only our own elements."""
    tab.page.locator(".fold-line[aria-expanded=false]").evaluate_all("folds => folds.forEach(fold => fold.click())")
    inert(tab)
    links = tab.page.locator(".shell a").evaluate_all("links => links.map(link => link.getAttribute('href'))")
    assert [link for link in links if not link.startswith(("http://", "https://", "mailto:", "#", "/"))] == []
    pictures = tab.page.locator(".shell img").evaluate_all("all => all.map(one => one.getAttribute('src'))")
    assert pictures == ["/static/mark.svg"]


def inert(tab: Tab) -> None:
    """Check that nothing was executed, and that nothing executable exists."""
    assert tab.page.evaluate("window.hacked === undefined")
    active = "body :is(script, iframe, link, meta, base, video, object, embed, math, form[action], style)"
    assert tab.page.locator(active).count() == 0
    attributes = (
        "all => all.flatMap(one => one.getAttributeNames()).filter(name => name.startsWith('on') || name === 'srcdoc')"
    )
    assert tab.page.locator("body *").evaluate_all(attributes) == []


def everything(tab: Tab, what: str = ".fold-line") -> int:
    """Scroll to the top; returns how many of these elements there are now."""
    tab.page.locator(".scroller").evaluate("box => box.scrollTop = 0")
    return tab.page.locator(what).count()


def test_the_content_security_policy_blocks_injected_scripts(person: Person) -> None:
    tab = person.tab()
    tab.page.evaluate("""() => {
        const image = document.createElement("img");
        try { image.setAttribute("onerror", "window.hacked = 1") } catch {}
        image.src = "/nowhere.png";
        document.body.append(image);
        const script = document.createElement("script");
        try { script.src = "data:text/javascript,window.hacked=1" } catch {}
        document.body.append(script);
        try { document.body.innerHTML += "<b>x</b>" } catch {}
    }""")

    assert tab.page.evaluate("window.hacked === undefined")
    assert any("Content Security Policy" in told or "Trusted" in told for told in person.complaints)
    person.complaints.clear()


def test_a_running_answer_of_a_tool_is_interrupted_visibly(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    turn = accepted(client, session, "ask May I?")
    tab = person.tab(session)
    expect(tab.page.get_by_role("group", name="Allow confirm?")).to_be_visible()

    client.post(f"/api/turns/{turn}/cancel")

    expect(tab.last.locator(".fold-state")).to_have_text("not approved")
    expect(tab.page.locator(".approval")).to_have_count(0)


def test_code_in_a_language_of_any_name_leaves_the_next_block_its_colours(
    person: Person, client: httpx2.Client
) -> None:
    languages = ["constructor", "__proto__", "toString", "hasOwnProperty"]
    session = new_session(client)
    said = "\n".join(f"```{language}\nreturn 1\n```\n\n```python\nreturn 1\n```\n" for language in languages)
    messages = [{"role": "user", "parts": [{"type": "text", "text": "x"}]}]
    messages.append({"role": "assistant", "parts": [{"type": "text", "text": said}]})
    client.post(f"/api/sessions/{session}/record", json={"messages": messages}).raise_for_status()
    tab = person.tab(session)

    expect(tab.page.locator("figure.code .hl-keyword")).to_have_text(["return"] * len(languages))
    named = [name for language in languages for name in (language, "python")]
    expect(tab.page.locator("figure.code figcaption span:first-child")).to_have_text(named)


# Reverses all text after it; first closes any isolation.
TWISTED = "cod\u2069\u202e\u2067exe.txt"
CONTROLS = re.compile("[\u202a-\u202e\u2066-\u2069]")


def test_bidi_controls_in_names_titles_and_links_reorder_nothing(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    client.patch(f"/api/sessions/{session}", json={"title": TWISTED})
    client.post("/api/tokens", json={"name": TWISTED}).raise_for_status()
    with_files(client, session, [TWISTED])
    said = f"Look at [{TWISTED}](https://good.example/) and then **[{TWISTED}](https://good.example/)** go on."
    answer = {"role": "assistant", "parts": [{"type": "text", "text": said}]}
    client.post(f"/api/sessions/{session}/record", json={"messages": [answer]}).raise_for_status()
    fork = client.post(f"/api/sessions/{session}/fork", json={}).json()["id"]
    client.patch(f"/api/sessions/{fork}", json={"title": TWISTED})
    tab = person.tab(session)
    paragraph = tab.page.locator(".markdown p", has_text="go on.")
    expect(paragraph).to_be_visible()

    assert paragraph.evaluate(IN_ORDER) == [True, True, True]
    for shown in (".markdown a", ".asked .chip span", ".sidebar .session-name", "h1.title button"):
        for element in tab.page.locator(shown).all():
            assert not CONTROLS.search(element.inner_text()), shown
    assert tab.page.locator(".asked .chip span[dir=auto]").inner_text() == CONTROLS.sub("\ufffd", TWISTED)
    assert not CONTROLS.search(tab.page.title())
    tab.button("Lineage").click()
    expect(tab.page.locator(".graph li", has_text="Continues as")).to_be_visible()
    assert not CONTROLS.search(tab.page.locator(".graph").inner_text())


# For each run of text outside of the links of a paragraph: whether its letters stand from left to right.
IN_ORDER = """paragraph => [...paragraph.childNodes].filter(node => node.nodeType === Node.TEXT_NODE).map(node => {
  const left = at => {
    const range = new Range();
    range.setStart(node, at);
    range.setEnd(node, at + 1);
    return range.getBoundingClientRect().left;
  };
  const letters = [...node.data].map((letter, at) => at).filter(at => node.data[at].trim());
  return left(letters[0]) < left(letters.at(-1));
})"""
