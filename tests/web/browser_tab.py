"""A tab of a real browser: actions and visible results. It waits for visible changes, never for time."""

from types import TracebackType
from typing import Self

import httpx2
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Error, Locator, Page, expect

# A working page needs a hundredth of it.
PATIENCE = 60_000
expect.set_options(timeout=PATIENCE)

# The browser itself logs when a server is unreachable, rejects a request or closes a connection; the page shows it.
NETWORK = ("Failed to load resource", "net::", "EventSource's response has a MIME type")

# Nothing may be tried that the policy has to block.
POLICY = """addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI, sample }) =>
  console.error("against the policy:", violatedDirective, blockedURI, sample))"""


class Person:
    """A user at a signed-in browser, with any number of tabs."""

    def __init__(
        self, browser: Browser, client: httpx2.Client, *, phone: bool = False, dark: bool = False, still: bool = True
    ) -> None:
        self.client = client
        self._context: BrowserContext = browser.new_context(
            viewport={"width": 390, "height": 844} if phone else {"width": 1280, "height": 800},
            has_touch=phone,
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce" if still else "no-preference",
            permissions=["clipboard-read", "clipboard-write"],
        )
        self._context.set_default_timeout(PATIENCE)
        self._context.add_init_script(POLICY)
        self.complaints: list[str] = []
        self.sign_in()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._context.close()
        if error is None:
            assert not self.complaints, f"the browser complained: {self.complaints}"

    def tab(self, session: str = "", view: str = "") -> "Tab":
        """One more tab, at a session."""
        page = self._context.new_page()
        page.on("console", self._hear)
        page.on("pageerror", self._object)
        return Tab(page, self.client).go(session, view)

    def sign_in(self) -> None:
        """Sign the browser in, again if need be."""
        # The request of the sign-in page, without the page.
        code = self.client.post("/api/links").json()["path"].partition("#")[2]
        answer = self._context.request.post(f"{self._root}/api/login", data={"code": code})
        assert answer.ok, answer.text()

    @property
    def _root(self) -> str:
        return str(self.client.base_url).rstrip("/")

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not any(known in message.text for known in NETWORK):
            self.complaints.append(message.text)

    def _object(self, error: Error) -> None:
        self.complaints.append(str(error))


class Tab:
    """One tab."""

    def __init__(self, page: Page, client: httpx2.Client) -> None:
        self.page, self._client = page, client

    def go(self, session: str = "", view: str = "") -> "Tab":
        """Open a session, or none."""
        root = str(self._client.base_url).rstrip("/")
        self.page.goto(f"{root}/#{session}{f'/{view}' if view else ''}")
        expect(self.connection).to_have_text("Live")
        return self

    @property
    def session(self) -> str:
        """The session in its address."""
        return self.page.url.partition("#")[2].partition("/")[0]

    @property
    def connection(self) -> Locator:
        return self.page.locator(".connection span")

    @property
    def message(self) -> Locator:
        return self.page.get_by_role("textbox", name="Message", exact=True)

    @property
    def who(self) -> Locator:
        """The choice of the agent that answers."""
        return self.page.get_by_role("combobox", name="Agent for this message")

    @property
    def turns(self) -> Locator:
        return self.page.locator(".turn")

    @property
    def last(self) -> Locator:
        return self.turns.last

    @property
    def answers(self) -> Locator:
        return self.page.locator(".answer")

    @property
    def queue(self) -> Locator:
        return self.page.get_by_role("list", name="Waiting messages").get_by_role("listitem")

    def say(self, text: str) -> None:
        """Type a message and send it, once the previous one is accepted."""
        expect(self.page.locator(".sending")).to_be_empty()
        self.message.fill(text)
        self.message.press("Enter")

    def ask(self, text: str) -> None:
        """Send a message and wait until it is answered."""
        count = self.turns.count()
        self.say(text)
        expect(self.turns).to_have_count(count + 1)
        expect(self.last.locator(".tools")).to_be_attached()

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def choose(self, item: str) -> None:
        """Choose an entry of the session's menu."""
        self.button("More").click()
        self.page.get_by_role("menuitem", name=item).click()

    def transcript(self) -> str:
        """Everything the conversation shows, as text."""
        return self.page.locator(".messages").inner_text()
