"""The web UI in a real browser: the actions of users, and the display of the stored state."""

from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, expect

from backstay import open_store
from backstay.store.commands import gateway_commands
from backstay.store.commands.gateways import pairing_commands
from tests.server.api_calls import accepted, answered, new_session, until
from tests.server.running_server import RunningServer
from tests.web.browser_tab import Person

# The page uses HTTP only, so the engine behind the server cannot matter.
pytestmark = pytest.mark.engines("sqlite")


def test_a_newcomer_sees_the_agent_and_a_tool_run_after_approval(person: Person) -> None:
    tab = person.tab()

    expect(tab.page.locator(".answers .badge")).to_have_text("scripted")
    expect(tab.page.get_by_role("button", name="Crash the server and watch")).to_be_visible()
    tab.page.get_by_role("button", name="Call a tool").click()
    expect(tab.page.get_by_role("group", name="Allow confirm?")).to_be_visible()
    expect(tab.page.get_by_role("img", name="Needs approval")).to_be_visible()
    tab.button("Allow").click()

    expect(tab.last.locator(".fold-title")).to_have_text(["Thought", "calculator", "confirm", "clock"])
    expect(tab.last.locator(".fold-state")).to_have_text(["done", "done", "done"])
    tab.last.locator(".fold-line", has_text="calculator").click()
    expect(tab.last.locator(".fold-body .json").first).to_contain_text("6*7")
    expect(tab.last.locator(".who .badge")).to_have_text("scripted")


def test_two_tabs_stay_in_step_and_the_list_shows_unread_sessions(person: Person, client: httpx2.Client) -> None:
    session, another = new_session(client), new_session(client)
    one, two, elsewhere = person.tab(session), person.tab(session), person.tab(another)

    one.ask("hello from the first tab")

    expect(two.last).to_contain_text("hello from the first tab")
    expect(two.last.locator(".tools")).to_be_attached()
    assert one.transcript() == two.transcript()
    answered(client, session, "from a program")
    expect(one.turns).to_have_count(2)
    expect(two.turns).to_have_count(2)
    expect(elsewhere.page.locator(".session-row", has_text="hello from the first tab")).to_be_visible()


def test_a_session_changed_elsewhere_is_unread_until_it_is_opened(person: Person, client: httpx2.Client) -> None:
    session, here = new_session(client), new_session(client)
    tab = person.tab(here)

    answered(client, session, "something new")
    expect(tab.page.get_by_role("img", name="Unread")).to_have_count(1)
    answered(client, session, "fail on purpose")
    expect(tab.page.get_by_role("img", name="Failed or interrupted, unread")).to_have_count(1)
    tab.page.locator(".session-row", has_text="something new").click()

    expect(tab.turns).to_have_count(2)
    expect(tab.page.get_by_role("img", name="Failed or interrupted, unread")).to_have_count(0)


def test_a_stopped_answer_keeps_its_output(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    accepted(client, session, "a long story", agent="patient")
    tab = person.tab(session)
    expect(tab.answers.last).to_contain_text("listening")

    tab.message.press("Escape")

    expect(tab.last.locator(".ending.cancelled")).to_contain_text("Stopped")
    expect(tab.answers.last).to_contain_text("listening")
    expect(tab.button("Stop the answer")).to_have_count(0)


def test_a_message_during_an_answer_waits_steers_or_replaces(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    accepted(client, session, "a long story", agent="patient")
    tab = person.tab(session)
    expect(tab.answers.last).to_contain_text("listening")
    expect(tab.who).to_have_value("patient")  # The agent of the last turn continues, unless another one is chosen.
    tab.who.select_option("default")

    tab.say("first in line")
    tab.say("second in line")
    expect(tab.queue).to_have_count(2)
    tab.queue.nth(1).get_by_role("button", name="Move up").click()
    expect(tab.queue.first).to_contain_text("second in line")
    tab.queue.first.get_by_role("button", name="Edit").click()
    tab.page.get_by_role("textbox", name="Waiting message").fill("second, changed")
    tab.button("Save").click()
    expect(tab.queue.first).to_contain_text("second, changed")
    tab.queue.nth(1).get_by_role("button", name="Remove").click()
    expect(tab.queue).to_have_count(1)

    tab.page.get_by_text("Steer", exact=True).click()
    tab.say("louder")
    expect(tab.page.locator(".steered")).to_contain_text("louder")
    expect(tab.answers.last).to_contain_text("heard louder")
    tab.page.get_by_text("Replace", exact=True).click()
    tab.say("something else")

    expect(tab.page.locator(".ending.cancelled")).to_have_count(1)
    expect(tab.page.locator(".asked")).to_have_text(["a long story", "something else", "second, changed"])
    expect(tab.queue).to_have_count(0)


def test_history_is_rewritten_and_its_lineage_shows_how(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    for text in ("one", "two", "three"):
        answered(client, session, text)
    tab = person.tab(session)
    asked = tab.page.locator(".asked")

    tab.last.get_by_role("button", name="Undo this turn").click()
    expect(asked).to_have_text(["one", "two"])
    tab.choose("Redo")
    expect(asked).to_have_text(["one", "two", "three"])
    tab.last.get_by_role("button", name="Answer again").click()
    until(lambda: len(windows(client, session)) == 3, "the retry opened a window")
    expect(tab.last.locator(".tools")).to_be_attached()
    expect(asked).to_have_text(["one", "two", "three"])
    tab.turns.nth(1).hover()
    tab.turns.nth(1).get_by_role("button", name="Edit and send again").click()
    tab.page.get_by_role("textbox", name="Your message").fill("two, edited")
    tab.button("Send instead").click()
    expect(asked).to_have_text(["one", "two, edited"])
    expect(tab.last.locator(".tools")).to_be_attached()

    tab.button("Lineage").click()
    expect(tab.page.locator(".graph li strong")).to_have_text(["Edit", "Retry", "Undo", "Started"])
    expect(tab.page.locator(".node")).to_have_count(4)
    tab.page.locator(".graph li", has_text="Started").get_by_role("button").click()
    expect(tab.page.locator(".banner.past")).to_be_visible()
    expect(asked).to_have_text(["one", "two", "three"])
    tab.button("Back to now").click()
    expect(asked).to_have_text(["one", "two, edited"])

    tab.turns.first.hover()
    tab.turns.first.get_by_role("button", name="Fork from here").click()
    expect(tab.page.locator(".head .badge", has_text="fork")).to_be_visible()
    expect(asked).to_have_text(["one"])
    assert tab.session != session


def windows(client: httpx2.Client, session: str) -> list[str]:
    return [window["id"] for window in client.get(f"/api/sessions/{session}/lineage").json()["windows"]]


def test_search_finds_text_while_typing_and_opens_it_in_its_place(person: Person, client: httpx2.Client) -> None:
    session, another = new_session(client), new_session(client)
    answered(client, session, "the walrus and the carpenter")
    for number in range(45):
        record(client, session, f"filler {number}")
    answered(client, another, "unrelated")
    client.get("/api/search", params={"q": "walrus"})
    tab = person.tab(another)

    tab.page.keyboard.press("Control+k")
    tab.page.get_by_role("combobox", name="Search").fill("walrus")
    expect(tab.page.locator(".snippet mark").first).to_have_text("walrus")
    tab.page.locator(".hits li", has=tab.page.locator(".snippet")).last.click()

    expect(tab.page.locator(".turn", has_text="the walrus and the carpenter")).to_be_in_viewport()
    assert tab.session == session
    expect(tab.button("Jump to latest")).to_be_visible()
    tab.button("Jump to latest").click()
    expect(tab.page.get_by_text("filler 44", exact=True)).to_be_in_viewport()


def record(client: httpx2.Client, session: str, text: str) -> None:
    said = [
        {"role": role, "parts": [{"type": "text", "text": f"{text}{more}"}]}
        for role, more in (("user", ""), ("assistant", " heard"))
    ]
    assert client.post(f"/api/sessions/{session}/record", json={"messages": said}).status_code == 200


def test_a_long_session_opens_at_its_end_and_is_read_upwards_without_jumps(
    person: Person, client: httpx2.Client
) -> None:
    session = new_session(client)
    for number in range(80):
        record(client, session, f"entry {number}")
    tab = person.tab(session)
    expect(tab.page.get_by_text("entry 79", exact=True)).to_be_in_viewport()
    expect(tab.turns).to_have_count(30)

    scroller = tab.page.locator(".scroller")
    seen = tab.page.get_by_text("entry 52", exact=True)
    seen.scroll_into_view_if_needed()
    expect(tab.turns).not_to_have_count(30)
    expect(seen).to_be_in_viewport()
    while tab.turns.count() < 80:
        count = tab.turns.count()
        scroller.evaluate("box => box.scrollTop = 0")
        expect(tab.turns).not_to_have_count(count)

    expect(tab.page.get_by_text("Start of this session")).to_be_attached()
    answered(client, session, "meanwhile")
    expect(tab.turns).to_have_count(81)
    expect(tab.last).not_to_be_in_viewport()
    expect(tab.button("Jump to latest")).to_be_visible()


def test_a_draft_and_a_file_are_kept_by_the_server(person: Person, client: httpx2.Client, tmp_path: Path) -> None:
    session = new_session(client)
    tab = person.tab(session)
    tab.message.fill("not finished yet")
    until(lambda: client.get(f"/api/sessions/{session}/marks").json()["draft"] == "not finished yet", "it is kept")

    other = person.tab(session)
    expect(other.message).to_have_value("not finished yet")
    (tmp_path / "tea.txt").write_text("two sugars")
    other.page.get_by_label("Attach files").set_input_files(tmp_path / "tea.txt")
    expect(other.page.get_by_role("list", name="Files")).to_contain_text("10 B")
    other.message.press("Enter")

    expect(other.last.locator(".asked .chip")).to_contain_text("tea.txt")
    with other.page.expect_download() as downloading:
        other.last.locator(".asked .chip").click()
    assert downloading.value.path().read_text() == "two sugars"
    expect(other.message).to_have_value("")
    until(lambda: client.get(f"/api/sessions/{session}/marks").json()["draft"] == "", "the draft is gone")


def test_the_list_can_be_organised_filtered_and_extended(person: Person, client: httpx2.Client) -> None:
    made = [new_session(client) for _ in range(130)]
    for number, session in enumerate(made):
        client.patch(f"/api/sessions/{session}", json={"title": f"Session {number}"})
    client.patch(f"/api/sessions/{made[3]}", json={"add_tags": ["kitchen"], "pinned": True})
    tab = person.tab(made[129])
    lines = tab.page.locator(".session-row")

    expect(tab.page.locator(".row-heading").first).to_have_text("Pinned")
    expect(lines.first).to_contain_text("Session 3")
    assert lines.count() < 60, "only what is in view is drawn"
    bottom = tab.page.locator(".session-row", has_text="Session 0")
    box = tab.page.locator(".list")
    until(lambda: bool(box.evaluate("box => box.scrollTop = box.scrollHeight") or bottom.count()), "the end is reached")
    tab.page.get_by_label("Tag", exact=True).select_option("kitchen")
    expect(lines).to_have_count(1)
    tab.page.get_by_label("Tag", exact=True).select_option("Any tag")
    tab.choose("Archive")
    expect(tab.page.locator(".session-row", has_text="Session 129")).to_have_count(0)


def test_everything_can_be_done_with_the_keyboard(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    tab = person.tab(session)
    keyboard = tab.page.keyboard
    expect(tab.message).to_be_focused()

    keyboard.type("hello")
    keyboard.press("Enter")
    expect(tab.last.locator(".tools")).to_be_attached()
    expect(tab.message).to_have_value("")
    keyboard.press("ArrowUp")
    expect(tab.page.get_by_role("textbox", name="Your message")).to_be_focused()
    keyboard.press("End")
    keyboard.type(" again")
    keyboard.press("Control+Enter")
    expect(tab.page.locator(".asked")).to_have_text(["hello again"])
    expect(tab.last.locator(".tools")).to_be_attached()

    tab.message.focus()
    keyboard.type("/und")
    expect(tab.page.locator("#offered [aria-selected=true]")).to_contain_text("/undo")
    keyboard.press("Tab")
    keyboard.press("Enter")
    expect(tab.turns).to_have_count(0)
    keyboard.press("Control+k")
    expect(tab.page.get_by_role("dialog", name="Search")).to_be_visible()
    keyboard.press("Escape")
    expect(tab.page.get_by_role("dialog")).to_have_count(0)
    tab.button("Help").focus()
    keyboard.press("?")
    expect(tab.page.get_by_role("dialog", name="Help")).to_be_visible()
    keyboard.press("Escape")
    expect(tab.button("Help")).to_be_focused()


def test_the_web_ui_works_on_a_phone(browser: Browser, client: httpx2.Client) -> None:
    session = new_session(client)
    client.patch(f"/api/sessions/{session}", json={"title": "Kitchen"})
    with Person(browser, client, phone=True) as person:
        tab = person.tab()
        tab.button("Show the list of sessions").tap()
        tab.page.locator(".session-row", has_text="Kitchen").tap()
        tab.ask("hello from a telephone")

        expect(tab.last).to_contain_text("You said: “hello from a telephone”")
        assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_settings_show_the_selected_agent_and_change_the_theme(person: Person, theme: str) -> None:
    tab = person.tab()
    tab.page.get_by_role("button", name="default, patient").click()
    sheet = tab.page.get_by_role("dialog", name="Settings")

    expect(sheet).to_contain_text("scripted: no model")
    expect(sheet).to_contain_text("forever")
    sheet.get_by_text(theme, exact=True).click()
    assert tab.page.evaluate("getComputedStyle(document.documentElement).colorScheme") == theme
    sheet.get_by_role("textbox", name="Purpose of the token").fill("a robot")
    sheet.get_by_role("button", name="New token").click()
    expect(sheet.locator(".secret")).to_contain_text("bsk_")


def test_the_settings_list_schedules_and_pause_run_and_delete_them(person: Person, client: httpx2.Client) -> None:
    session = new_session(client)
    wanted = {"when": "weekday 9:00 Europe/Zurich", "text": "Stand up!", "session": session}
    schedule = client.post("/api/schedules", json=wanted).json()["id"]
    tab = person.tab()
    tab.page.get_by_role("button", name="default, patient").click()
    sheet = tab.page.get_by_role("dialog", name="Settings")
    line = sheet.locator(".schedules li", has_text="Stand up!")

    expect(line).to_contain_text("weekday 09:00 Europe/Zurich; next")
    line.get_by_role("button", name="Pause").click()
    expect(line.locator(".badge")).to_have_text("paused")
    line.get_by_role("button", name="Resume").click()
    expect(line.locator(".badge")).to_have_count(0)
    line.get_by_role("button", name="Run now").click()
    expect(line).to_contain_text("fired")
    assert [one["step"] for one in client.get(f"/api/schedules/{schedule}/log").json()["entries"]] == [
        "fired",
        "resumed",
        "paused",
        "created",
    ]
    tab.page.once("dialog", lambda dialog: dialog.accept())
    line.get_by_role("button", name="Delete").click()
    expect(line).to_have_count(0)
    assert client.get("/api/schedules").json()["schedules"] == []


def test_the_settings_list_gateways_and_let_a_person_in(person: Person, server: RunningServer) -> None:
    with open_store(server.settings.db) as store:
        proof = store.run(gateway_commands.open_gateway("telegram/7", owner=server.owner))
        assert proof is not None
        store.run(pairing_commands.give_code(proof, "42", "Ann", "ABCD2345"))
        tab = person.tab()
        tab.page.get_by_role("button", name="default, patient").click()
        bot = tab.page.get_by_role("dialog", name="Settings").locator(".gateways > li")

        expect(bot).to_contain_text("No message received yet")
        bot.get_by_label("Code of a person").fill("abcd-2345")
        bot.get_by_role("button", name="Let in").click()
        expect(bot.locator(".people li")).to_contain_text("let in")
        tab.page.once("dialog", lambda dialog: dialog.accept())
        bot.get_by_role("button", name="Remove").click()
        expect(bot.locator(".people li")).to_have_count(0)


def test_a_token_that_expires_and_only_reads_is_made_in_the_settings(person: Person, client: httpx2.Client) -> None:
    tab = person.tab()
    tab.page.get_by_role("button", name="default, patient").click()
    sheet = tab.page.get_by_role("dialog", name="Settings")
    sheet.get_by_role("textbox", name="Purpose of the token").fill("a dashboard")
    sheet.get_by_role("combobox", name="When the token expires").select_option("expires in a week")
    sheet.get_by_role("checkbox", name="read-only").check()
    sheet.get_by_role("button", name="New token").click()

    line = sheet.locator(".tokens li", has_text="a dashboard")
    expect(line).to_contain_text("read-only")
    expect(line).to_contain_text("until")
    [made] = [one for one in client.get("/api/tokens").json()["tokens"] if one["name"] == "a dashboard"]
    assert (made["access"], made["expires_at"] - made["created_at"]) == ("read", 7 * 86_400_000)


def test_the_waiting_messages_of_an_imported_session_are_held_until_released(
    person: Person, client: httpx2.Client, server: RunningServer
) -> None:
    session = new_session(client)
    accepted(client, session, "wait", agent="patient")
    for text in ("first in line", "second in line"):
        accepted(client, session, text)
    document = client.get(f"/api/sessions/{session}/export").content
    client.delete(f"/api/sessions/{session}")
    tab = person.tab(new_session(client))

    tab.page.get_by_role("button", name="default, patient").click()
    tab.page.get_by_label("Import a session").set_input_files(
        {"name": "session.jsonl", "mimeType": "application/x-ndjson", "buffer": document}
    )
    expect(tab.page.locator(".notice")).to_contain_text("held until you release them")
    tab.page.keyboard.press("Escape")
    expect(tab.queue).to_have_count(2)
    expect(tab.queue.first).to_contain_text("held")

    tab.queue.first.get_by_role("button", name="Release").click()
    expect(tab.queue).to_have_count(1)
    expect(tab.answers.last).to_contain_text("first in line")
    tab.queue.first.get_by_role("button", name="Remove").click()
    expect(tab.queue).to_have_count(0)


def test_a_session_goes_out_as_a_file_and_comes_in_again(
    person: Person, client: httpx2.Client, server: RunningServer
) -> None:
    session = new_session(client)
    answered(client, session, "remember this")
    tab = person.tab(session)
    with tab.page.expect_download() as downloading:
        tab.choose("Export to a file")
    path = downloading.value.path()
    client.delete(f"/api/sessions/{session}")
    expect(tab.page.get_by_text("This session was deleted")).to_be_visible()

    tab.page.get_by_role("button", name="default, patient").click()
    tab.page.get_by_label("Import a session").set_input_files(
        {"name": "session.json", "mimeType": "application/json", "buffer": path.read_bytes()}
    )
    tab.page.keyboard.press("Escape")

    expect(tab.page.locator(".asked")).to_have_text(["remember this"])
