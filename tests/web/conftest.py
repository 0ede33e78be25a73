"""A browser, if there is one, and a server whose agents the tests control."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest
from playwright.sync_api import Browser, sync_playwright

from backstay.agents.scripted.scripted_agent import ScriptedAgent
from tests.databases import Place
from tests.server.agents import patient
from tests.server.running_server import RunningServer, run_server
from tests.web.browser_tab import Person

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class SharedBrowser:
    """Debian's Chromium, started once for all tests of this process, and again if it has ended.

    While Playwright is open, it marks its event loop as the running one of this thread. Between two tests that use the
    browser the mark is removed, so that the tests between them can run event loops of their own.
    """

    def __init__(self, chromium: str) -> None:
        self._chromium = chromium
        self._browser: Browser | None = None
        self._playwright = sync_playwright().start()
        self._loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)  # noqa: SLF001  # the documented way for whoever runs a loop

    @contextmanager
    def used(self) -> Iterator[Browser]:
        """Inside the block the browser can be used."""
        asyncio._set_running_loop(self._loop)  # noqa: SLF001
        try:
            if self._browser is None or not self._browser.is_connected():
                self._browser = self._playwright.chromium.launch(executable_path=self._chromium, args=["--no-sandbox"])
            yield self._browser
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001

    def close(self) -> None:
        """End the browser."""
        with self.used() as browser:
            browser.close()
            self._playwright.stop()


@pytest.fixture(scope="session")
def shared_browser() -> Iterator[SharedBrowser]:
    """The browser of this process."""
    if CHROMIUM is None:
        pytest.skip("the page is tested with Chromium, which is not installed here (Debian: apt install chromium)")
    shared = SharedBrowser(CHROMIUM)
    yield shared
    shared.close()


@pytest.fixture
def browser(shared_browser: SharedBrowser) -> Iterator[Browser]:
    """The browser, while a test uses it."""
    with shared_browser.used() as browser:
        yield browser


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
