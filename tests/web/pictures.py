"""The pictures in docs/pictures: screenshots of a real server in a demonstration."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
from playwright.sync_api import Browser, expect, sync_playwright

from tests.cli.installed_command import running
from tests.documentation.chat_picture import chat_page
from tests.gateways.fake_telegram import TOKEN, fake_telegram
from tests.server.api_calls import answered, new_session
from tests.server.server_process import serving
from tests.web.browser_tab import Person, Tab
from tests.web.conftest import CHROMIUM

TO = Path(__file__).parents[2] / "docs" / "pictures"

OTHERS = ("Names for the new harbour", "Why the tide is late", "Recipe for sourdough", "Letter to the council")
ANSWER = """Yes. Three things matter: an **end**, a growing pause, and errors that are *not* retried.

```python
async def insist(ask, attempts=5):
    for attempt in range(attempts):
        try:
            return await ask()
        except Unreachable:
            await sleep(min(2 ** attempt, 30))
    raise GaveUp(attempts)
```
"""


def main() -> None:
    """Take all pictures."""
    TO.mkdir(exist_ok=True)
    with (
        TemporaryDirectory() as folder,
        serving(Path(folder), "--db", "chat.db", "--demo", environment={"BACKSTAY_TITLES": "true"}) as served,
        served.client() as client,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        session = furnished(client)
        take(browser, client, session, "conversation", look_at_an_answer)
        take(browser, client, session, "dark", look_at_an_answer, dark=True)
        take(browser, client, session, "phone", look_at_an_answer, phone=True)
        take(browser, client, rewritten(client), "lineage", look_at_the_lineage)
        take(browser, client, new_session(client), "after-crash", watch_it_crash)
        take_chat(browser)
        browser.close()


def take(
    browser: Browser, client: httpx2.Client, session: str, name: str, act: Callable[[Tab], None], **how: bool
) -> None:
    """One picture, after these actions."""
    with Person(browser, client, **how) as person:
        tab = person.tab(session)
        act(tab)
        tab.page.screenshot(path=TO / f"{name}.png", scale="css")


def take_chat(browser: Browser) -> None:
    """The picture of a Telegram chat: the server is killed while it answers, and started again."""
    with TemporaryDirectory() as folder, fake_telegram() as telegram:
        options = ("serve", "--port", "0", "--no-open")
        settings = {
            "BACKSTAY_AGENT": "scripted",
            "BACKSTAY_TELEGRAM_TOKEN": TOKEN,
            "BACKSTAY_GATEWAYS_TELEGRAM_SERVER": telegram.url,
            "BACKSTAY_GATEWAYS_TELEGRAM_ALLOW_USERS": "42",
            "BACKSTAY_ON_INTERRUPT": "resume",
        }
        db = Path(folder, "chat.db")
        with running(Path(folder), db, *options, **settings) as server:
            telegram.write("calc 3*15")
            telegram.wait_for(lambda: any("45" in text for text in telegram.texts()))
            telegram.write("slow 6")
            telegram.wait_for(lambda: telegram.waiting == 0)
            server.kill()
        killed = int(telegram.write("Are you still there?").rpartition("/")[2])
        with running(Path(folder), db, *options, **settings):
            telegram.wait_for(lambda: any("still there" in text for text in telegram.texts()))
        page = browser.new_page(viewport={"width": 420, "height": 100}, device_scale_factor=2)
        page.set_content(chat_page(telegram, breaks={killed: "kill -9 of the server"}))
        page.locator("body").screenshot(path=TO / "telegram.png", scale="css")
        page.close()


def furnished(client: httpx2.Client) -> str:
    for title in OTHERS:
        record(client, new_session(client), title, f"Of course. {title}: let us begin.")
    session = new_session(client)
    record(client, session, "Can you show me a retry loop with a bounded wait?", ANSWER)
    client.patch(f"/api/sessions/{session}", json={"title": "A retry loop that ends", "add_tags": ["code"]})
    answered(client, session, "think about what could go wrong\ncalc 2**5\nslow 2")
    return session


def rewritten(client: httpx2.Client) -> str:
    session = new_session(client)
    for text in ("A plan for Saturday", "calc 3*15", "slow 3"):
        answered(client, session, text)
    client.post(f"/api/sessions/{session}/undo")
    answered(client, session, "Rather for Sunday")
    message = client.get(f"/api/sessions/{session}/messages").json()["messages"][2]["id"]
    edited = client.post(f"/api/sessions/{session}/messages/{message}/edit", json={"text": "calc 4*15"}).json()["id"]
    client.get(f"/api/turns/{edited}")
    answered(client, session, "slow 2")
    client.post(f"/api/sessions/{session}/compact", json={"keep": 0})
    answered(client, session, "And what was the plan?")
    client.post(f"/api/sessions/{session}/fork", json={})
    return session


def record(client: httpx2.Client, session: str, asked: str, told: str) -> None:
    said = [
        {"role": role, "parts": [{"type": "text", "text": text}]}
        for role, text in (("user", asked), ("assistant", told))
    ]
    client.post(f"/api/sessions/{session}/record", json={"messages": said})
    client.patch(f"/api/sessions/{session}", json={"title": asked})


def look_at_an_answer(tab: Tab) -> None:
    """The newest answer, with its tool call unfolded, and its code in colours."""
    expect(tab.page.locator(".hl-keyword").first).to_be_attached()
    tab.last.locator(".fold-line", has_text="calculator").click()
    tab.page.locator(".code").scroll_into_view_if_needed()


def look_at_the_lineage(tab: Tab) -> None:
    """Open the lineage."""
    tab.button("Lineage").click()
    expect(tab.page.locator(".node.now")).to_be_attached()


def watch_it_crash(tab: Tab) -> None:
    """Kill the server in the middle of an answer, and wait for its restart."""
    tab.page.get_by_role("button", name="Crash the server and watch").click()
    expect(tab.page.locator(".banner.recovered")).to_contain_text("One answer was interrupted")


if __name__ == "__main__":
    main()
