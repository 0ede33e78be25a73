"""A browser, if there is one, and a server whose agents the tests control."""

import shutil
from collections.abc import Iterator

import httpx2
import pytest
from playwright.sync_api import Browser, sync_playwright

from backstay.agents.scripted.scripted_agent import ScriptedAgent
from tests.databases import Place
from tests.server.agents import patient
from tests.server.running_server import RunningServer, run_server
from tests.web.browser_tab import Person

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, a module at a time, because Playwright keeps an event loop while it is open."""
    if CHROMIUM is None:
        pytest.skip("the page is tested with Chromium, which is not installed here (Debian: apt install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture
def server(place: Place) -> Iterator[RunningServer]:
    """A server with a scripted agent and a patient one, on every engine."""
    with run_server(place, {"default": ScriptedAgent(), "patient": patient}, demo=True, titles=True) as server:
        yield server


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx2.Client]:
    """A program with a token of the server."""
    with server.client() as client:
        yield client


@pytest.fixture
def person(browser: Browser, client: httpx2.Client) -> Iterator[Person]:
    """A user at a desktop browser."""
    with Person(browser, client) as person:
        yield person
