"""Who is told in the web UI: webhooks in the settings."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.server.agents import AGENTS
from tests.server.api_calls import accepted, new_session
from tests.server.running_server import run_server
from tests.web.browser_tab import Person
from tests.webhooks.fake_receiver import SECRET, FakeReceiver, fake_receiver

pytestmark = pytest.mark.engines("sqlite")


@pytest.fixture
def receiver() -> Iterator[FakeReceiver]:
    with fake_receiver() as receiver:
        yield receiver


def test_the_settings_list_webhooks_and_send_again_what_failed(
    browser: Browser, tmp_path: Path, receiver: FakeReceiver
) -> None:
    (tmp_path / "secret").write_bytes(SECRET)
    secret = {"secret_file": str(tmp_path / "secret")}
    hooks = {"in": {"build": secret}, "out": {"ops": {"url": receiver.url} | secret}}
    receiver.plan = [410]
    with (
        run_server(tmp_path / "chat.db", AGENTS, webhooks=hooks) as server,
        server.client() as client,
        Person(browser, client) as person,
    ):
        accepted(client, new_session(client), "hello")
        receiver.wait_for(lambda: bool(receiver.attempts))
        tab = person.tab()
        expect(tab.page.get_by_role("listitem").filter(has_text="hello")).to_be_visible()
        tab.page.get_by_role("button", name="default, patient").click()
        sheet = tab.page.get_by_role("dialog", name="Settings")
        line = sheet.locator(".webhooks > li", has_text="ops")
        expect(sheet.locator(".webhooks > li", has_text="build")).to_contain_text("POST /hooks/build")
        line.get_by_role("button", name="Test").click()
        expect(line.get_by_role("status")).to_have_text("Accepted: HTTP 204")

        line.get_by_role("button", name="1 failed").click()
        expect(line).to_contain_text("HTTP 410")
        line.get_by_role("button", name="Send again", exact=True).click()

        receiver.wait_for(lambda: bool(receiver.bodies("turn_ended")))
        expect(line.get_by_role("button", name="1 failed")).to_have_count(0)
