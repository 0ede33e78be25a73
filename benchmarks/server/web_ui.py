"""The web UI: the cost of a frame while a long answer streams into a long session, at any speed."""

import asyncio
import bisect
import json
import math
import os
import statistics
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
from playwright.sync_api import Browser, expect, sync_playwright

from backstay import Text
from backstay.agents.port import AgentTurn
from backstay.model.content import Body
from benchmarks.instruments.figure import Figure
from tests.server.api_calls import new_session
from tests.server.running_server import run_server
from tests.web.browser_tab import Person
from tests.web.conftest import CHROMIUM

MESSAGES = 2_000
ANSWER = 16 * 1024
PIECE = 24
FRAME_MS = 16.0

PACES = {"a piece every 10 ms": 0.01, "a piece every 1 ms": 0.001, "all at once": 0.0}
MIXED = """## Part {number}

Some **bold** words, a [link](https://example.org/{number}) and `code` in a sentence that goes on for a while.

- one thing
- another thing with *emphasis*

```python
def part_{number}(x):
    return x + {number}
```

"""
# Answers of a single block, which is unfinished until the end: all of it must be drawn again.
SHAPES = {
    "mixed": ("", MIXED),
    "one program": ("```python\n", "def part_{number}(x):\n    return x + {number}  # {number}\n\n"),
    "one list": ("", "- item **{number}** with `code` and a few words\n"),
    "one paragraph": ("", "Sentence {number} has **bold** and *slanted* words and goes on for a while. "),
}

Traced = dict[str, Any]  # Any: an entry of the browser's trace

# The script entries of a trace: the outermost contains everything that it triggers.
SCRIPT = frozenset(
    {
        "EvaluateScript",
        "EventDispatch",
        "FireAnimationFrame",
        "FireIdleCallback",
        "FunctionCall",
        "RunMicrotasks",
        "TimerFire",
        "v8.callFunction",
    }
)
TRACED = ["-*", "toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline", "v8"]

ANSWERED = """([path, text]) => new Promise((resolve) => {
  const answers = document.querySelectorAll(".tools").length;
  const watching = new MutationObserver(() => {
    if (document.querySelectorAll(".tools").length > answers) resolve(watching.disconnect());
  });
  watching.observe(document.querySelector(".messages"), { childList: true, subtree: true });
  const body = JSON.stringify({ text });
  fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body });
})"""


async def writer(turn: AgentTurn) -> AsyncIterator[Body]:
    """Write sixteen kilobytes of Markdown in the requested shape and pace, a few words at a time."""
    shape, pace = json.loads(turn.input.text)
    first, repeated = SHAPES[shape]
    text = (first + "".join(repeated.format(number=number) for number in range(1000)))[:ANSWER]
    for start in range(0, ANSWER, PIECE):
        yield Text(text[start : start + PIECE])
        await asyncio.sleep(pace)


def figures() -> Iterator[Figure]:
    """The cost of a frame; no figures without a browser."""
    if CHROMIUM is None:
        return
    with (
        TemporaryDirectory() as folder,
        run_server(Path(folder) / "chat.db", {"default": writer}) as server,
        server.client() as client,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, pace in PACES.items():
            yield _frame_figure(name, costs(browser, client, a_long_session(client), "mixed", pace))
        for shape in list(SHAPES)[1:]:
            yield _frame_figure(f"{shape}, every 1 ms", costs(browser, client, a_long_session(client), shape, 0.001))
        browser.close()


def _frame_figure(name: str, pictures: Sequence[float]) -> Figure:
    return Figure(
        name=f"script in a picture, p95: {name}",
        value=percentile(pictures, 95),
        unit="ms",
        limit=FRAME_MS,
        detail=(
            f"p50 {statistics.median(pictures):.1f}, most {max(pictures):.1f}, {len(pictures)} pictures, "
            f"load {os.getloadavg()[0]:.1f}"
        ),
    )


def percentile(values: Sequence[float], percent: int) -> float:
    """The percentile of these values; there may be few."""
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


def a_long_session(client: httpx2.Client) -> str:
    """Create a session with many messages."""
    session = new_session(client)
    said = [{"role": role, "parts": [{"type": "text", "text": f"{role} said this"}]} for role in ("user", "assistant")]
    for _ in range(MESSAGES // 200):
        answer = client.post(f"/api/sessions/{session}/record", json={"messages": said * 100})
        assert answer.status_code == 200, answer.text
    return session


def costs(browser: Browser, client: httpx2.Client, session: str, shape: str, pace: float) -> list[float]:
    """The milliseconds of script in each frame while one answer streams in, as traced by the browser.

    It is the processor time of the thread, which other programs do not affect.
    """
    with Person(browser, client) as person:
        tab = person.tab(session)
        expect(tab.turns.first).to_be_attached()
        browser.start_tracing(page=tab.page, categories=TRACED)
        # Polling for an element would run script in the page and be measured.
        tab.page.evaluate(ANSWERED, [f"/api/sessions/{session}/turns", json.dumps([shape, pace])])
        traced = json.loads(browser.stop_tracing())["traceEvents"]
    return _pictures(traced)


def _pictures(traced: Sequence[Traced]) -> list[float]:
    """Script on the main thread, from the task that draws one frame to the task that draws the next."""
    thread = sorted(_busiest(traced), key=lambda event: (event["ts"], -event["dur"]))
    drawn = [event["ts"] for event in thread if event["name"] == "FireAnimationFrame"]
    begun = [task["ts"] for task in thread if task["name"] == "RunTask" and _any_between(drawn, task)]
    sums = [0.0] * len(begun)
    over = 0.0
    for event in thread:
        if event["name"] in SCRIPT and event["ts"] >= over:
            over = event["ts"] + event["dur"]
            # The browser omits the thread's time of an event that was under way when tracing began or ended.
            took = event["tdur"] if "tdur" in event else event["dur"]
            sums[max(0, bisect.bisect_right(begun, event["ts"]) - 1)] += took / 1000
    return sums


def _any_between(times: Sequence[float], task: Traced) -> bool:
    place = bisect.bisect_left(times, task["ts"])
    return place < len(times) and times[place] < task["ts"] + task["dur"]


def _busiest(traced: Sequence[Traced]) -> list[Traced]:
    """The thread that drew most frames."""
    threads: dict[tuple[int, int], list[Traced]] = {}
    for event in traced:
        if event.get("ph") == "X":
            threads.setdefault((event["pid"], event["tid"]), []).append(event)
    return max(threads.values(), key=lambda events: sum(event["name"] == "FireAnimationFrame" for event in events))
