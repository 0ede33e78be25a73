"""A program that speaks ACP, for tests: it follows the last line of its prompt.

Run as a script: `acp_program.py [MODE]`, where a mode is a way to misbehave. Its actions are in a table, so that a test
reads like a conversation: `say hello`, `use a tool`, `ask first`, `wait`, `die`.
"""

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

# A script finds only modules beside itself.
sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.agents.acp.acp_stdio import Connection, Message, RequestRefused

SESSION = "the-only-one"
ONCE = {"optionId": "yes", "name": "Allow once", "kind": "allow_once"}
ALWAYS = {"optionId": "always", "name": "Allow always", "kind": "allow_always"}
NEVER = {"optionId": "no", "name": "Reject", "kind": "reject_once"}
WRITING = {"toolCallId": "t1", "title": "Write a.txt", "kind": "edit", "rawInput": {"n": 1}}


class Program:
    """Remembers the number of prompts, and the whole last prompt."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._cwd = ""
        self._prompts: list[list[str]] = []
        self._cancelled = asyncio.Event()
        self._client = Connection(
            {
                "initialize": self.initialize,
                "session/new": self.new_session,
                "session/prompt": self.prompt,
                "session/cancel": self.cancel,
            }
        )

    async def run(self) -> None:
        await self._client.run()

    async def initialize(self, _: Message) -> Message:
        return {"protocolVersion": self._version, "agentCapabilities": {}}

    async def new_session(self, asked: Message) -> Message:
        self._cwd = asked["cwd"]
        return {"sessionId": SESSION}

    async def cancel(self, _: Message) -> None:
        self._cancelled.set()

    async def prompt(self, asked: Message) -> Message:
        texts = [block["text"] for block in asked["prompt"]]
        self._prompts.append(texts)
        self._cancelled.clear()
        wish = texts[-1].splitlines()[-1].strip()
        verb = max((verb for verb in self._table() if wish.startswith(verb)), key=len)
        stopped = await self._table()[verb](wish.removeprefix(verb).strip())
        # Unchanged, even if it is not a reason of the protocol.
        return {"stopReason": stopped or "end_turn"}

    def _table(self) -> dict[str, Callable[[str], Awaitable[str | None]]]:
        return {
            "say": self._say,
            "think": self._think,
            "tell the prompt": self._tell_prompt,
            "tell where": self._tell_where,
            "use a tool": self._use,
            "fail a tool": self._fail,
            "use a tool bit by bit": self._use_bit_by_bit,
            "begin a tool": self._begin,
            "ask first": self._ask_first,
            "ask for ever": self._ask_for_ever,
            "wait": self._wait,
            "be deaf": self._be_deaf,
            "die": self._die,
            "kill": self._kill,
            "babble": self._babble,
            "roar": self._roar,
            "stop": self._stop,
            "err": self._err,
            "plan": self._plan,
            "cost": self._cost,
            "read a file": self._read,
            "surrogate": self._surrogate,
        }

    def _tell(self, update: str, **about: Any) -> None:  # Any: JSON
        self._client.notify("session/update", {"sessionId": SESSION, "update": {"sessionUpdate": update, **about}})

    def _tell_text(self, text: str, kind: str = "agent_message_chunk") -> None:
        self._tell(kind, content={"type": "text", "text": text})

    def _tell_tool(self, **about: Any) -> None:  # Any: JSON
        self._tell("tool_call_update", toolCallId="t1", **about)

    async def _say(self, words: str) -> None:
        for word in words.split():
            self._tell_text(f"{word} ")

    async def _think(self, words: str) -> None:
        self._tell_text(words, "agent_thought_chunk")
        await self._say("thought about it")

    async def _tell_prompt(self, _: str) -> None:
        told = {"pid": os.getpid(), "prompts": self._prompts}
        self._tell_text(json.dumps(told))

    async def _tell_where(self, _: str) -> None:
        told = {"session": self._cwd, "process": str(Path.cwd()), "environment": sorted(os.environ)}
        self._tell_text(json.dumps(told))

    async def _begin(self, _: str = "") -> None:
        self._tell("tool_call", **WRITING, status="pending")

    async def _use(self, _: str) -> None:
        await self._begin()
        self._tell_tool(status="in_progress")
        given = [{"type": "content", "content": {"type": "text", "text": "written"}}]
        self._tell_tool(status="completed", content=given)
        await self._say("done")

    async def _use_bit_by_bit(self, _: str) -> None:
        """Announce a call before its details are known, as some programs do."""
        self._tell("tool_call", toolCallId="t1", title="Write", kind="edit", status="pending")
        change = [{"type": "diff", "path": "a.txt", "oldText": "old", "newText": "new"}]
        self._tell_tool(title="Write a.txt", rawInput={"n": 1}, content=change)
        self._tell_tool(status="completed", rawOutput="written")
        self._tell_tool(status="completed", rawOutput="again")

    async def _fail(self, _: str) -> None:
        await self._begin()
        self._tell_tool(status="failed", rawOutput={"error": "disk full"})
        await self._say("failed")

    async def _ask_first(self, _: str) -> None:
        await self._ask([ALWAYS, ONCE, NEVER])

    async def _ask_for_ever(self, _: str) -> None:
        await self._ask([ALWAYS, NEVER])

    async def _ask(self, options: list[Message]) -> None:
        asked = {"sessionId": SESSION, "toolCall": WRITING, "options": options}
        outcome = (await self._client.request("session/request_permission", asked))["outcome"]
        chosen = outcome["optionId"] if outcome["outcome"] == "selected" else None
        if chosen not in (None, "no"):
            self._tell_tool(status="completed", rawOutput="written")
        await self._say(chosen or "cancelled")

    async def _wait(self, words: str) -> str:
        """Speak, then wait to be cancelled, and write down that it was."""
        await self._say(words or "waiting")
        await self._cancelled.wait()
        Path(self._cwd, "cancelled").touch()  # noqa: ASYNC240  # nothing else happens here
        return "cancelled"

    async def _be_deaf(self, _: str) -> None:
        """Start a call, and ignore cancellation, signals, and the end of the input."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        await self._begin()
        self._tell_text(f"{os.getpid()}\n")
        threading.Event().wait()  # it also ignores the end of its input

    async def _die(self, _: str) -> None:
        await self._begin()
        await self._say("almost")
        sys.stderr.write("first\nthe disk is on \x1b[31mfire\n")
        sys.stderr.flush()
        os._exit(3)

    async def _kill(self, _: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async def _babble(self, _: str) -> None:
        """Print lines that are not messages, and continue."""
        for line in ("npm notice", "{", "[1]", "42", '{"id":7}', '{"method":1}', '{"id":[1],"result":1}', "null"):
            sys.stdout.write(line + "\n")
        unknown = {"sessionId": "the-only-one", "update": {"sessionUpdate": "from_the_future", "n": 1}}
        for params in (unknown, 7, {"sessionId": "another", "update": unknown["update"]}):
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}) + "\n")
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "method": "nobody/knows", "params": {}}) + "\n")
        sys.stdout.flush()
        await self._say("all the same")

    async def _roar(self, _: str) -> None:
        sys.stdout.write("x" * (17 << 20) + "\n")
        sys.stdout.flush()
        await self._say("heard?")

    async def _stop(self, reason: str) -> str:
        await self._say("so far")
        return reason

    async def _err(self, _: str) -> None:
        raise RequestRefused(-32603, "Internal error", {"details": "the model is away"})

    async def _plan(self, _: str) -> None:
        self._tell("plan", entries=[{"content": "look around", "priority": "medium", "status": "pending"}])
        self._tell_text("an echo", "user_message_chunk")
        self._tell("agent_message_chunk", content={"type": "image", "data": "aGk=", "mimeType": "image/png"})
        await self._say("planned")

    async def _cost(self, amount: str) -> None:
        self._tell("usage_update", used=100, size=1_000, cost={"amount": float(amount), "currency": "USD"})
        await self._say("paid")

    async def _read(self, _: str) -> None:
        try:
            await self._client.request("fs/read_text_file", {"sessionId": SESSION, "path": "/etc/passwd"})
        except RequestRefused as refused:
            await self._say(f"refused {refused.error['code']}")

    async def _surrogate(self, _: str) -> None:
        half = json.dumps("half \ud800 of a pair")
        update = f'{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":{half}}}}}'
        params = f'{{"sessionId":"the-only-one","update":{update}}}'
        sys.stdout.write(f'{{"jsonrpc":"2.0","method":"session/update","params":{params}}}\n')
        sys.stdout.flush()


async def _be_silent() -> None:
    sys.stdout.write("Welcome to the shell!\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


class Stranger(Program):
    """Rejects clients that have not signed in."""

    async def new_session(self, asked: Message) -> Message:
        raise RequestRefused(-32000, "Authentication required")


async def _serve(mode: str) -> None:
    agent = Stranger(1) if mode == "sign in" else Program(99 if mode == "of tomorrow" else 1)
    await agent.run()


def main(mode: str = "") -> None:
    """Run as an agent, or misbehave as the mode says."""
    if mode == "silent":
        asyncio.run(_be_silent())
    elif mode == "gone":
        sys.stderr.write("no licence\n")
        sys.exit(7)
    elif mode == "noisy":
        while True:
            sys.stdout.write("noise " * 1_000 + "\n")
    else:
        asyncio.run(_serve(mode))


if __name__ == "__main__":
    main(*sys.argv[1:2])
