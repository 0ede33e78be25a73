"""The display: names, times, sentences and characters as intended, without overlaps.

None of this depends on the engine, so each test runs once.
"""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, FloatRect, Locator, expect

from backstay.agents.adapters import AgentLike
from backstay.agents.scripted.scripted_agent import ScriptedAgent
from tests.server.agents import careful
from tests.server.api_calls import accepted, answered, new_session
from tests.server.running_server import RunningServer, run_server
from tests.web.browser_tab import Person
from tests.web.web_agents import spelling

TABLE = """| what | how many | of which |
|---|---:|---|
| harbours | 3 | of those that are open in winter, and of those that are not |

- [ ] to do
- [x] done
"""
ARABIC = "مرحبا بالعالم"

# The distances of an element's text from its two sides.
SIDES = """element => {
  const words = new Range();
  words.selectNodeContents(element);
  const [inner, outer] = [words.getBoundingClientRect(), element.getBoundingClientRect()];
  return [inner.left - outer.left, outer.right - inner.right];
}"""


# The number of lines of its text.
LINES = """element => {
  const words = new Range();
  words.selectNodeContents(element);
  return words.getClientRects().length;
}"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    agents: dict[str, AgentLike] = {"default": ScriptedAgent(), "spelling": spelling, "careful": careful}
    with run_server(tmp_path / "chat.db", agents) as server:
        yield server


def box(found: Locator) -> FloatRect:
    """Its position."""
    place = found.bounding_box()
    assert place is not None
    return place


@pytest.mark.parametrize("phone", [False, True], ids=["desk", "phone"])
def test_nothing_lies_over_the_composer_or_breaks_its_lines(
    browser: Browser, client: httpx2.Client, phone: bool
) -> None:
    session = new_session(client)
    answered(client, session, "hello")
    for _ in range(9):
        client.post(f"/api/sessions/{session}/retry")
        answered(client, session, "again")
        client.post(f"/api/sessions/{session}/undo")
    with Person(browser, client, phone=phone) as person:
        tab = person.tab(session, "lineage")
        expect(tab.page.locator(".node.now")).to_be_attached()
        assert box(tab.page.locator(".graph ol"))["width"] > box(tab.page.locator(".graph svg"))["width"]

        tab.go(session)
        name = f"{'a very long name ' * 9}.txt"
        tab.page.get_by_label("Attach files").set_input_files(
            {"name": name, "mimeType": "text/plain", "buffer": b"tea"}
        )
        file = tab.page.get_by_role("list", name="Files").get_by_role("listitem")
        expect(file).to_contain_text("3 B")
        assert box(file.locator(".dim"))["height"] < box(file)["height"] < 2 * box(file.locator(".dim"))["height"]

        file.get_by_role("button").click()
        tab.message.fill("/rename")
        tab.message.press("Enter")
        expect(tab.page.locator(".notice").first).to_be_visible()
        for notice in tab.page.locator(".notice").all():
            assert box(notice)["y"] + box(notice)["height"] < box(tab.page.locator(".composer"))["y"]


def test_a_long_queue_does_not_hide_the_conversation(browser: Browser, client: httpx2.Client) -> None:
    session = new_session(client)
    accepted(client, session, "launch it", agent="careful")
    for place in range(15):
        accepted(client, session, f"message {place}")
    with Person(browser, client, phone=True) as person:
        tab = person.tab(session)
        expect(tab.queue).to_have_count(15)
        tab.button("Allow").scroll_into_view_if_needed()
        expect(tab.button("Allow")).to_be_in_viewport()
        assert box(tab.page.locator(".scroller"))["height"] > box(tab.page.locator(".queue"))["height"]


def test_text_follows_its_own_direction(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    answered(client, session, f"{ARABIC}\n\nhello\n\n- {ARABIC}", agent="spelling")
    tab = person.tab(session)
    words = tab.last.locator(".markdown")
    for arabic in (words.locator("p").first, words.locator("li")):
        left, right = arabic.evaluate(SIDES)
        assert left > right
    left, right = words.locator("p").nth(1).evaluate(SIDES)
    assert left < right
    tab.message.fill(ARABIC)
    expect(tab.message).to_have_css("unicode-bidi", "plaintext")


def test_numbers_are_aligned_and_task_lists_have_check_boxes(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    answered(client, session, TABLE, agent="spelling")
    tab = person.tab(session)
    left, right = tab.last.locator("td").nth(1).evaluate(SIDES)
    assert left > right
    expect(tab.last.locator("li")).to_have_text(["☐ to do", "☑ done"])
    # Words are not broken, however narrow the page is.
    tab.page.set_viewport_size({"width": 320, "height": 600})
    assert tab.last.locator("td").first.evaluate(LINES) == 1


def test_the_default_title_of_a_session_has_no_markdown(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    answered(client, session, "# Three **things** matter", agent="spelling")
    tab = person.tab(session)
    expect(tab.page.get_by_role("heading", name="Three things matter", exact=True).first).to_be_visible()
    expect(tab.page.locator(".session-row")).to_contain_text("Three things matter")


def test_rejections_and_failures_are_shown_in_whole_sentences(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    accepted(client, session, "launch it", agent="careful")
    tab = person.tab(session)
    # The request for approval shows the arguments.
    expect(tab.last.locator(".fold-body")).to_contain_text("the moon")
    tab.button("Deny").click()
    expect(tab.last.locator(".fold-state")).to_have_text("denied")
    expect(tab.last.locator(".ending")).to_contain_text("Tell the person, or find another way.")
    expect(tab.last.locator(".ending")).not_to_contain_text(").")

    tab.go("ses_01zzzzzzzzzzzzzzzzzzzzzzzz")
    expect(tab.page.locator(".welcome p").first).to_contain_text(". ")


def test_errors_are_shown_in_words_and_above_other_layers(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    tab = person.tab(session)
    notice = tab.page.locator(".notice")
    for command, told in (
        ("/redo", "This session has nothing to redo."),
        ("/compact", "Nothing to summarise yet."),
    ):
        tab.message.fill(command)
        tab.message.press("Enter")
        expect(notice).to_contain_text(told)
        notice.get_by_role("button").click()

    tab.page.locator(".sidebar footer button").first.click()
    tab.page.get_by_label("Import a session").set_input_files(
        {"name": "tea.json", "mimeType": "application/json", "buffer": b"two sugars"}
    )
    expect(notice).to_contain_text("The file tea.json is not an exported session.")
    # It is above the dialog, so it can be clicked.
    notice.get_by_role("button").click()
    expect(notice).to_have_count(0)
    expect(tab.page.get_by_role("dialog")).to_be_visible()


def test_a_menu_that_is_left_is_closed(person: Person, client: httpx2.Client) -> None:
    tab = person.tab(new_session(client))
    tab.button("More").click()
    items = tab.page.get_by_role("menuitem")
    expect(items.first).to_be_focused()
    items.last.focus()
    tab.page.keyboard.press("Tab")
    expect(items).to_have_count(0)


def test_times_in_the_list_go_on_while_nothing_happens(person: Person, client: httpx2.Client) -> None:
    answered(client, new_session(client), "hello")
    tab = person.tab()
    tab.page.clock.install()
    tab.go()
    tab.page.reload()
    expect(tab.page.locator(".session-row time")).to_have_text("now")
    tab.page.clock.fast_forward("05:30")
    expect(tab.page.locator(".session-row time")).to_have_text("5 min")


def test_copied_is_shown_only_after_a_copy(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    answered(client, session, "```\ntea\n```", agent="spelling")
    tab = person.tab(session)
    # As in a page that was loaded over plain HTTP.
    tab.page.evaluate("""() => {
      Object.defineProperty(navigator, "clipboard", { value: undefined });
      addEventListener("copy", () => (document.body.dataset.copied = document.activeElement.value));
    }""")
    copy = tab.page.locator(".code").get_by_role("button")
    copy.click()
    expect(copy).to_have_text("Copied")
    expect(tab.page.locator("body")).to_have_attribute("data-copied", "tea\n")
    expect(copy).to_have_text("Copy")

    tab.page.evaluate("document.execCommand = () => false")
    copy.click()
    expect(tab.page.locator(".notice")).to_contain_text("did not allow copying")
    expect(copy).to_have_text("Copy")


def test_keys_move_through_the_list_as_shown_and_going_back_closes_the_top_layer(
    person: Person, client: httpx2.Client
) -> None:
    sessions = [new_session(client) for _ in range(3)]
    for place, session in enumerate(sessions):
        client.patch(f"/api/sessions/{session}", json={"title": f"Session {place}", "pinned": place == 0})
    tab = person.tab(sessions[0])
    expect(tab.page.locator(".session-row")).to_contain_text(["Session 0", "Session 2", "Session 1"])
    tab.page.keyboard.press("Alt+ArrowDown")
    expect(tab.page.get_by_role("heading", name="Session 2")).to_be_visible()

    tab.page.keyboard.press("Control+k")
    expect(tab.page.get_by_role("dialog")).to_be_visible()
    tab.page.go_back()
    expect(tab.page.get_by_role("heading", name="Session 0")).to_be_visible()
    expect(tab.page.get_by_role("dialog")).to_have_count(0)
