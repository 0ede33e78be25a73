"""The web UI can be installed, and shows a page of its own when the server cannot be reached."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.server.agents import AGENTS
from tests.server.running_server import run_server
from tests.web.browser_tab import Person

pytestmark = pytest.mark.engines("sqlite")
ACTIVE = "navigator.serviceWorker.ready.then((one) => one.active.scriptURL)"


def test_the_web_ui_can_be_installed_and_opens_without_the_server(browser: Browser, tmp_path: Path) -> None:
    with (
        run_server(tmp_path / "chat.db", AGENTS) as server,
        server.client() as client,
        Person(browser, client) as person,
    ):
        page = person.tab().page
        assert page.evaluate(ACTIVE) == f"{server.url}/service-worker.js"
        found = page.context.new_cdp_session(page).send("Page.getAppManifest")
        assert (found["url"], found["errors"]) == (f"{server.url}/static/manifest.webmanifest", [])
        assert page.context.new_cdp_session(page).send("Page.getInstallabilityErrors")["installabilityErrors"] == [
            {"errorId": "in-incognito", "errorArguments": []}
        ]
        for icon in page.evaluate("fetch('/static/manifest.webmanifest').then((one) => one.json())")["icons"]:
            answer = client.get(icon["src"])
            assert (answer.status_code, answer.headers["content-type"]) == (200, icon["type"])

        server.stop()
        page.goto(server.url)

        expect(page.get_by_role("status")).to_contain_text("The server cannot be reached.")
        assert page.evaluate("getComputedStyle(document.querySelector('main')).maxWidth") != "none"


def test_no_answer_of_the_server_is_kept_by_the_service_worker(browser: Browser, tmp_path: Path) -> None:
    with (
        run_server(tmp_path / "chat.db", AGENTS) as server,
        server.client() as client,
        Person(browser, client) as person,
    ):
        page = person.tab().page
        page.evaluate(ACTIVE)
        page.reload()
        kept = page.evaluate(
            "caches.keys().then((names) => Promise.all(names.map((name) => caches.open(name))))"
            ".then((all) => Promise.all(all.map((one) => one.keys())))"
            ".then((all) => all.flat().map((one) => new URL(one.url).pathname))"
        )

    assert sorted(kept) == ["/static/mark.svg", "/static/offline.html", "/static/sign_in.css"]
