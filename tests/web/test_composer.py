"""The composer and its neighbours: no text is lost, sent by accident, or sent to another session.

None of this depends on the engine, so each test runs once.
"""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import FilePayload, Locator, Route, expect

from backstay.agents.adapters import AgentLike
from backstay.agents.scripted.scripted_agent import ScriptedAgent
from tests.server.agents import patient
from tests.server.api_calls import accepted, answered, new_session, read, until
from tests.server.running_server import RunningServer, run_server
from tests.web.browser_tab import Person, Tab

NOTE: FilePayload = {"name": "note.txt", "mimeType": "text/plain", "buffer": b"two sugars"}

# The events of a browser for the Enter that confirms an input method; the second is Safari's.
CHOOSING = ({"isComposing": True}, {"keyCode": 229})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    agents: dict[str, AgentLike] = {"default": ScriptedAgent(), "patient": patient}
    with run_server(tmp_path / "chat.db", agents) as server:
        yield server


def choose_letters(field: Locator) -> None:
    """Press the Enter that ends a composition, in every way that browsers report it."""
    for how in CHOOSING:
        press = (
            "(field, how) => field.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, ...how }))"
        )
        field.evaluate(press, how)


def files(tab: Tab) -> Locator:
    return tab.page.get_by_role("list", name="Files").get_by_role("listitem")


def test_a_draft_survives_a_page_that_is_closed_at_once(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    tab = person.tab(session)
    # The page types and then reloads itself before its delay for saving drafts ends: all three are timers of the page,
    # so their order is certain. No call of Playwright is under way then: the answer to one that a page going away
    # interrupts may never arrive, and `evaluate` and `keyboard` wait for it without a limit.
    tab.page.evaluate("""() => void setTimeout(() => {
      document.querySelector(".composer textarea").focus();
      document.execCommand("insertText", false, "do not lose me");
      setTimeout(() => location.reload(), 50);
    })""")

    until(lambda: client.get(f"/api/sessions/{session}/marks").json()["draft"] == "do not lose me", "it is kept")
    expect(tab.connection).to_have_text("Live")


def test_a_draft_that_was_changed_elsewhere_is_found_when_one_comes_back(person: Person, client: httpx2.Client) -> None:
    session, other = new_session(client), new_session(client)
    tab = person.tab(session)
    tab.message.fill("begun here")
    until(lambda: client.get(f"/api/sessions/{session}/marks").json()["draft"] == "begun here", "it is kept")
    tab.go(other)
    expect(tab.message).to_have_value("")

    client.put(f"/api/sessions/{session}/draft", json={"text": "finished elsewhere"})
    tab.go(session)
    expect(tab.message).to_have_value("finished elsewhere")


def test_a_file_goes_with_the_session_in_which_it_was_attached(person: Person, client: httpx2.Client) -> None:
    session, other = new_session(client), new_session(client)
    tab = person.tab(session)
    tab.page.get_by_label("Attach files").set_input_files(NOTE)
    expect(files(tab)).to_contain_text("10 B")

    tab.go(other)
    tab.ask("hello")
    assert [part["type"] for part in read(client, other)[0]["parts"]] == ["text"]
    tab.go(session)
    expect(files(tab)).to_contain_text("note.txt")


def test_an_edited_message_keeps_its_files(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    tab = person.tab(session)
    tab.page.get_by_label("Attach files").set_input_files(NOTE)
    expect(files(tab)).to_contain_text("10 B")
    tab.ask("look")

    tab.message.press("ArrowUp")
    editor = tab.page.get_by_role("textbox", name="Your message")
    editor.fill("look again")
    editor.press("Control+Enter")
    expect(tab.last.locator(".asked")).to_contain_text("look again")
    expect(tab.last.locator(".asked .chip")).to_contain_text("note.txt")
    expect(tab.last.locator(".tools")).to_be_attached()

    tab.who.select_option("patient")
    tab.say("a long story")
    expect(tab.button("Stop the answer")).to_be_visible()
    tab.page.get_by_label("Attach files").set_input_files(NOTE)
    expect(files(tab)).to_contain_text("10 B")
    tab.say("next")
    tab.queue.get_by_role("button", name="Edit").click()
    waiting = tab.page.get_by_role("textbox", name="Waiting message")
    waiting.fill("rather this")
    waiting.press("Enter")
    expect(tab.queue).to_contain_text("rather this")
    tab.button("Stop the answer").click()
    expect(tab.last.locator(".asked")).to_contain_text("rather this")
    expect(tab.last.locator(".asked .chip")).to_contain_text("note.txt")


def test_a_name_that_is_not_kept_changes_nothing(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    tab = person.tab(session)
    told: list[str] = []
    tab.page.on("request", lambda request: told.append(str(request.post_data)) if request.method == "PATCH" else None)
    for name, key in (("never mind", "Escape"), ("Tea", "Enter")):
        tab.page.get_by_role("button", name="New session", exact=True).last.click()
        title = tab.page.get_by_role("textbox", name="Name of this session")
        title.fill(name)
        title.press(key)
        expect(title).to_have_count(0)

    expect(tab.page.get_by_role("heading", name="Tea")).to_be_visible()
    assert told == ['{"title":"Tea"}']


def test_a_file_that_is_dropped_beside_the_composer_is_attached(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    answered(client, session, "hello")
    tab = person.tab(session)
    expect(tab.turns).to_have_count(1)

    opened_by_browser = tab.page.evaluate("""() => {
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File(["two sugars"], "note.txt"));
      const drop = new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
      return document.querySelector(".messages").dispatchEvent(drop);
    }""")
    assert not opened_by_browser
    expect(files(tab)).to_contain_text("note.txt")


def test_text_copied_with_a_picture_of_it_is_pasted_as_text(person: Person, client: httpx2.Client) -> None:
    tab = person.tab(new_session(client))
    paste = """(field, words) => {
      const clipboardData = new DataTransfer();
      clipboardData.items.add(new File(["…"], "image.png", { type: "image/png" }));
      if (words) clipboardData.setData("text/plain", words);
      return field.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
    }"""

    assert tab.message.evaluate(paste, "a cell of a table"), "left to the browser, which pastes words"
    expect(files(tab)).to_have_count(0)
    assert not tab.message.evaluate(paste, "")
    expect(files(tab)).to_have_count(1)


def test_an_enter_that_chooses_letters_sends_and_keeps_nothing(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    accepted(client, session, "a long story", agent="patient")
    accepted(client, session, "next")
    tab = person.tab(session)
    tab.queue.get_by_role("button", name="Edit").click()
    waiting = tab.page.get_by_role("textbox", name="Waiting message")
    waiting.fill("にほん")
    choose_letters(waiting)
    expect(waiting).to_have_value("にほん")
    tab.page.get_by_role("button", name="a long story", exact=True).click()
    title = tab.page.get_by_role("textbox", name="Name of this session")
    title.fill("にほん")
    choose_letters(title)
    expect(title).to_have_value("にほん")
    title.press("Escape")
    tab.message.fill("にほん")
    choose_letters(tab.message)
    expect(tab.message).to_have_value("にほん")
    expect(tab.page.locator(".sending")).to_be_empty()

    tab.message.press("Enter")
    expect(tab.queue).to_have_count(2)
    assert client.get(f"/api/sessions/{session}").json()["title"] is None


def test_escape_closes_a_field_and_not_the_answer_behind_it(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    answered(client, session, "hello")
    tab = person.tab(session)
    accepted(client, session, "a long story", agent="patient")
    expect(tab.button("Stop the answer")).to_be_visible()

    tab.turns.first.hover()
    tab.turns.first.get_by_role("button", name="Edit and send again").click()
    editor = tab.page.get_by_role("textbox", name="Your message")
    editor.press("Escape")
    expect(editor).to_have_count(0)
    tab.message.fill("/un")
    tab.message.press("Escape")
    expect(tab.page.get_by_role("listbox", name="Commands")).to_have_count(0)
    # Requests are answered in order, so a stop request would have arrived.
    tab.message.fill("still there?")
    until(lambda: client.get(f"/api/sessions/{session}/marks").json()["draft"] == "still there?", "the server heard us")
    turns = client.get(f"/api/sessions/{session}/snapshot").json()["turns"]
    assert [turn["id"] for turn in turns if turn["cancel_requested"]] == []
    expect(tab.button("Stop the answer")).to_be_enabled()


def test_the_send_mode_of_one_message_does_not_apply_to_the_next(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    accepted(client, session, "a long story", agent="patient")
    tab = person.tab(session)
    tab.page.get_by_text("Replace", exact=True).click()
    tab.button("Stop the answer").click()
    expect(tab.page.locator(".ending")).to_be_visible()

    accepted(client, session, "another", agent="patient")
    expect(tab.page.get_by_role("radio", name="Queue")).to_be_checked()


def test_an_upload_completes_over_a_broken_connection(person: Person, client: httpx2.Client) -> None:
    tab = person.tab(new_session(client))
    left = [2, 3]  # how often the connection breaks during a chunk, and during the look-up of its state

    def cut(route: Route) -> None:
        asked = route.request.method == "POST"
        left[asked] -= 1
        if left[asked] >= 0:
            route.abort()
        else:
            route.continue_()

    tab.page.route("**/api/uploads/**", cut)
    tab.page.get_by_label("Attach files").set_input_files(NOTE)
    expect(files(tab)).to_contain_text("10 B")
    assert max(left) < 0
    expect(tab.page.locator(".notice")).to_have_count(0)


def test_two_clicks_take_one_turn_back(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    for text in ("one", "two", "three"):
        answered(client, session, text)
    tab = person.tab(session)
    tab.last.get_by_role("button", name="Undo this turn").dblclick()
    expect(tab.turns).to_have_count(2)
    tab.last.get_by_role("button", name="Fork from here").dblclick()
    expect(tab.page.get_by_role("link", name="fork")).to_be_visible()
    assert len(client.get("/api/sessions").json()["sessions"]) == 2
    assert len(read(client, session)) == 4


def test_two_clicks_make_one_session(person: Person, client: httpx2.Client) -> None:
    tab = person.tab()
    tab.page.get_by_role("button", name="New session").first.dblclick()
    expect(tab.message).to_be_enabled()
    tab.page.get_by_role("button", name="New session").first.click()
    tab.ask("hello")
    assert len(client.get("/api/sessions").json()["sessions"]) == 1

    tab.page.get_by_role("button", name="New session").first.click()
    expect(tab.turns).to_have_count(0)
    until(lambda: len(client.get("/api/sessions").json()["sessions"]) == 2, "the other is not new")
