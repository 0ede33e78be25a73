"""The page: what a picture costs while a long answer streams into a long session."""

import asyncio
import statistics
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
from playwright.sync_api import Browser, CDPSession, expect, sync_playwright

from backstay import Text
from backstay.agents.port import AgentTurn
from backstay.model.content import Body
from benchmarks.figure import Figure
from tests.page.conftest import CHROMIUM
from tests.page.tab import Person
from tests.server.house import a_house
from tests.server.talking import new_session

MESSAGES = 2_000
ANSWER = 16 * 1024
FRAME_MS = 16.0

PARAGRAPH = """## Part {number}

Some **bold** words, a [link](https://example.org/{number}) and `code` in a sentence that goes on for a while.

- one thing
- another thing with *emphasis*

```python
def part_{number}(x):
    return x + {number}
```

"""

# Our own work in a picture: from the beginning of its callback until what it has set off in the same breath is done.
STOPWATCH = """
window.pictures = [];
const original = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = (draw) => original((at) => {
  const began = performance.now();
  draw(at);
  queueMicrotask(() => queueMicrotask(() => window.pictures.push(performance.now() - began)));
});
"""


async def writer(_: AgentTurn) -> AsyncIterator[Body]:
    """Writes sixteen kilobytes of Markdown, a few words at a time, some ten times as fast as models do."""
    text = "".join(PARAGRAPH.format(number=number) for number in range(200))[:ANSWER]
    for start in range(0, ANSWER, 24):
        yield Text(text[start : start + 24])
        await asyncio.sleep(0.01)


def figures() -> Iterator[Figure]:
    """What a picture costs; nothing if there is no browser."""
    if CHROMIUM is None:
        return
    with (
        TemporaryDirectory() as folder,
        a_house(Path(folder) / "chat.db", {"default": writer}) as house,
        house.client() as client,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        costs, spent = _costs(browser, client)
        browser.close()
    yield Figure(
        name="script work in a picture, p95",
        value=statistics.quantiles(costs, n=100)[94],
        unit="ms",
        limit=FRAME_MS,
        detail=f"{len(costs)} pictures, a 16 KB answer in a session of {MESSAGES:,} messages",
    )
    yield Figure(name="script work in a picture, median", value=statistics.median(costs), unit="ms")
    yield Figure(
        name="processor time in a picture, mean",
        value=spent * 1000 / len(costs),
        unit="ms",
        limit=FRAME_MS,
        detail="script and layout of the page's thread, which others cannot delay",
    )


def _costs(browser: Browser, client: httpx2.Client) -> tuple[list[float], float]:
    """What each picture took, and the seconds of processor time they took together."""
    session = new_session(client)
    said = [{"role": role, "parts": [{"type": "text", "text": f"{role} said this"}]} for role in ("user", "assistant")]
    for _ in range(MESSAGES // len(said)):
        answer = client.post(f"/api/sessions/{session}/record", json={"messages": said})
        assert answer.status_code == 200, answer.text
    with Person(browser, client) as person:
        tab = person.tab()
        tab.page.add_init_script(STOPWATCH)
        tab.page.reload()
        tab.go(session)
        expect(tab.turns.first).to_be_attached()
        tab.page.evaluate("window.pictures.length = 0")
        counting = tab.page.context.new_cdp_session(tab.page)
        counting.send("Performance.enable", {"timeDomain": "threadTicks"})
        before = _spent(counting)
        tab.ask("write")
        spent = _spent(counting) - before
        costs: list[float] = tab.page.evaluate("window.pictures")
    return costs, spent


def _spent(counting: CDPSession) -> float:
    counts = {one["name"]: one["value"] for one in counting.send("Performance.getMetrics")["metrics"]}
    return float(counts["ScriptDuration"] + counts["LayoutDuration"] + counts["RecalcStyleDuration"])
