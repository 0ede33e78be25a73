"""Web Push in the web UI: a browser subscribes, shows what it is sent, and a session can be silent."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.push.fake_push_service import FakePushService, fake_push_service
from tests.server.agents import AGENTS
from tests.server.api_calls import accepted, new_session, until
from tests.server.running_server import run_server
from tests.web.browser_tab import Person

pytestmark = pytest.mark.engines("sqlite")

# This browser cannot reach the push service of its maker: its subscription comes from the fake one.
SUBSCRIBED = """(found) => {
  PushManager.prototype.getSubscription = async () => null;
  PushManager.prototype.subscribe = async (options) => {
    window.subscribedTo = options;
    return { toJSON: () => found };
  };
  Notification.requestPermission = async () => "granted";
}"""
SHOWN = """navigator.serviceWorker.ready.then((one) => one.getNotifications())
  .then((all) => all.map(({ title, body, tag }) => [title, body, tag]))"""

# What the service worker tells an open window after a click.
CLICKED = """(session) => navigator.serviceWorker.dispatchEvent(new MessageEvent("message", { data: { session } }))"""


@pytest.fixture
def service() -> Iterator[FakePushService]:
    with fake_push_service() as service:
        yield service


def test_a_browser_subscribes_and_a_session_can_be_silent(
    browser: Browser, tmp_path: Path, service: FakePushService
) -> None:
    with (
        run_server(tmp_path / "chat.db", AGENTS, push_services=[service.place]) as server,
        server.client() as client,
        Person(browser, client) as person,
    ):
        session = new_session(client)
        tab = person.tab(session)
        expect(tab.message).to_be_visible()
        tab.page.evaluate(SUBSCRIBED, service.subscription("laptop"))
        tab.page.get_by_role("button", name="default, patient").click()
        sheet = tab.page.get_by_role("dialog", name="Settings")
        sheet.get_by_role("textbox", name="Name of this device").fill("my laptop")
        sheet.get_by_role("button", name="Notify this device").click()
        expect(sheet.locator(".devices li", has_text="my laptop")).to_be_visible()
        wanted = tab.page.evaluate("window.subscribedTo")
        assert wanted == {"userVisibleOnly": True, "applicationServerKey": client.get("/api/push").json()["public_key"]}
        accepted(client, session, "hello")
        service.wait_for(lambda: len(service.got) == 1)

        tab.page.keyboard.press("Escape")
        tab.page.get_by_role("button", name="More", exact=True).click()
        tab.page.get_by_role("menuitem", name="Do not notify when done").click()

        choice = f"/api/sessions/{session}/push"
        until(lambda: client.get(choice).json() == {"done": False, "needs_you": True}, "the session is silent")


def test_a_pushed_message_is_shown_and_opens_its_session(browser: Browser, tmp_path: Path) -> None:
    with (
        run_server(tmp_path / "chat.db", AGENTS) as server,
        server.client() as client,
        Person(browser, client) as person,
    ):
        session = new_session(client)
        page = person.tab().page
        page.context.grant_permissions(["notifications"], origin=server.url)
        page.evaluate("navigator.serviceWorker.ready")
        devtools = page.context.new_cdp_session(page)
        found: list[str] = []
        devtools.on(
            "ServiceWorker.workerRegistrationUpdated",
            lambda told: found.extend(one["registrationId"] for one in told["registrations"]),
        )
        devtools.send("ServiceWorker.enable")
        page.wait_for_function("navigator.serviceWorker.controller !== undefined")
        data = f'{{"title": "Tea", "body": "Done", "session": "{session}", "needs_you": false}}'
        devtools.send(
            "ServiceWorker.deliverPushMessage", {"origin": server.url, "registrationId": found[0], "data": data}
        )
        until(lambda: page.evaluate(SHOWN) == [["Tea", "Done", session]], "the notification is shown")

        page.evaluate(CLICKED, session)
        page.wait_for_function(f"location.hash === '#{session}'")
