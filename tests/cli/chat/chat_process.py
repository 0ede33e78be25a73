"""`backstay chat` on a terminal or a pipe, with agents that follow instructions in the input."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from tests.cli.forked_command import PATIENCE, fork_server
from tests.cli.terminal import Terminal, forked_terminal
from tests.databases import Place

# An agent in a file of its own, as an operator would write one.
BOT = """
import asyncio
import zlib

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
    elif words == "open":
        for part in turn.input.parts[1:]:
            yield Text(f"{part.name}: {zlib.crc32(await turn.read(part))}. ")
        yield Text("All were read.")
    elif words == "fail":
        raise ValueError("no \\x1b[2Jluck")
    else:
        yield Text(f"You said {words!r}.")
    yield Usage(1, 1)
"""

# An agent whose tool pays, and the first time then waits to be killed.
CASHIER = """
import asyncio
from pathlib import Path

from backstay import Text
from backstay.agents import tool

@tool
async def pay(amount: int, key: str) -> str:
    with Path("payments").open("a") as file:
        print(key, file=file)
    if len(Path("payments").read_text().split()) == 1:
        await asyncio.Event().wait()
    return "paid"

async def agent(turn):
    yield Text("One moment.\\n\\n")
    yield Text(f"It is {await turn.call(pay, {'amount': 5})}.")
"""


def surroundings(home: Path) -> dict[str, str]:
    """An environment without agents, except those of the test, and without titles, which come at any time."""
    own = {"BACKSTAY_PROBE": "", "BACKSTAY_TITLES": "false"}
    return {"HOME": str(home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TZ": "UTC"} | own


def with_bot(folder: Path) -> Path:
    """The folder, with the agent in it."""
    (folder / "bot.py").write_text(BOT)
    return folder


def with_cashier(folder: Path) -> Path:
    """The folder with the paying agent, and the file of its payments."""
    (folder / "cashier.py").write_text(CASHIER)
    return folder / "payments"


@contextmanager
def chatting(folder: Path, *arguments: str, rows: int = 40) -> Iterator[Terminal]:
    """`backstay chat` on a terminal, ready to be typed on."""
    with forked_terminal(["chat", *arguments], cwd=folder, environment=surroundings(folder), rows=rows) as shown:
        shown.wait_until(lambda seen: "ses_" in seen and seen.endswith("›"))
        yield shown


def with_database(place: Place) -> tuple[str, ...]:
    """The options of a chat with this database."""
    return ("--db", str(place), "--agent", "bot:agent")


def piped(folder: Path, *arguments: str, said: bytes, **more: str) -> "subprocess.CompletedProcess[bytes]":
    """The output of a chat that reads from a pipe."""
    theirs, ours = os.pipe()
    with TemporaryFile() as out, TemporaryFile() as err, os.fdopen(ours, "wb") as pipe:
        try:
            streams = (theirs, out.fileno(), err.fileno())
            chat = fork_server().start(["chat", *arguments], folder, surroundings(folder) | more, streams)
        finally:
            os.close(theirs)
        with suppress(BrokenPipeError):
            pipe.write(said)
            pipe.close()
        code = chat.wait(PATIENCE)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(["chat", *arguments], code, out.read(), err.read())
