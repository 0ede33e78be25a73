"""A browser, if there is one, and a server whose agents the tests can lead."""

import shutil
from collections.abc import Iterator

import httpx2
import pytest
from playwright.sync_api import Browser, sync_playwright

from backstay.agents.scripted import ScriptedAgent
from tests.databases import Place
from tests.page.tab import Person
from tests.server.agents import patient
from tests.server.house import House, a_house

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
def house(place: Place) -> Iterator[House]:
    """A server with a scripted agent and a patient one, on every engine."""
    with a_house(place, {"default": ScriptedAgent(), "patient": patient}, demo=True, titles=True) as house:
        yield house


@pytest.fixture
def client(house: House) -> Iterator[httpx2.Client]:
    """A program that may ask it."""
    with house.client() as client:
        yield client


@pytest.fixture
def person(browser: Browser, client: httpx2.Client) -> Iterator[Person]:
    """Somebody at a desk."""
    with Person(browser, client) as person:
        yield person
