"""Chats as people have them: `backstay chat` on a terminal or a pipe, with agents that do as they are told."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.terminal import PATIENCE, Terminal, terminal
from tests.databases import Place
from tests.server.served import COMMAND

# An agent in a file of its own, as an operator would write one.
BOT = """
import asyncio

from backstay import Text, Thought, Usage

async def agent(turn):
    words = turn.input.text
    if words.startswith("count "):
        for number in range(int(words[6:])):
            yield Text(f"number {number}.\\n\\n")
    elif words.startswith("hang "):
        for number in range(int(words[5:])):
            yield Text(f"number {number}.\\n\\n")
        yield Text("and now")
        while not turn.cancelled:
            await asyncio.sleep(0.01)
            for heard in await turn.steering():
                yield Text(f"\\n\\nHeard: {heard.parts[0].text}.\\n\\n")
                return
    elif words == "evil":
        yield Thought("\\x1b]0;owned\\x07")
        yield Text("before\\x1b[2J\\x1b]0;owned\\x07\\x9b2Jafter\\u202e\\n\\n<b>tag</b>\\n")
    elif words == "fail":
        raise ValueError("no \\x1b[2Jluck")
    else:
        yield Text(f"You said {words!r}.")
    yield Usage(1, 1)
"""


def surroundings(home: Path) -> dict[str, str]:
    """An environment in which nothing is found but what the test puts there."""
    return {"HOME": str(home), "PATH": "/usr/bin:/bin", "BACKSTAY_PROBE": "", "LANG": "C.UTF-8", "TZ": "UTC"}


def with_bot(folder: Path) -> Path:
    """The folder, with the agent in it."""
    (folder / "bot.py").write_text(BOT)
    return folder


@contextmanager
def chatting(folder: Path, *arguments: str, rows: int = 40) -> Iterator[Terminal]:
    """`backstay chat` on a terminal, ready to be typed on."""
    command = [str(COMMAND), "chat", *arguments]
    with terminal(command, cwd=folder, environment=surroundings(folder), rows=rows) as shown:
        shown.wait_until(lambda seen: "ses_" in seen and seen.endswith("›"))
        yield shown


def with_database(place: Place) -> tuple[str, ...]:
    """The options of a chat with this database."""
    return ("--db", str(place), "--agent", "bot:agent")


def piped(folder: Path, *arguments: str, said: bytes) -> "subprocess.CompletedProcess[bytes]":
    """What a chat answers that reads from a pipe."""
    return subprocess.run(
        [COMMAND, "chat", *arguments],
        cwd=folder,
        env=surroundings(folder),
        input=said,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
