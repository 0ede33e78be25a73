"""A program that speaks ACP, for tests: it does what the last line of its prompt says.

Run as a script: `acp_program.py [MODE]`, where a mode is a way not to be an agent. What it does is in a table, so that
a test reads like a conversation: `say hello`, `use a tool`, `ask first`, `wait`, `die`.
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

import acp
from acp.schema import (
    AgentCapabilities,
    AllowedOutcome,
    Cost,
    InitializeResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    TextContentBlock,
    ToolCallUpdate,
    UsageUpdate,
)

ONCE = PermissionOption(option_id="yes", name="Allow once", kind="allow_once")
ALWAYS = PermissionOption(option_id="always", name="Allow always", kind="allow_always")
NEVER = PermissionOption(option_id="no", name="Reject", kind="reject_once")


class Program:
    """Remembers how often it was asked, and the whole of its last prompt."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._client: Any = None  # Any: the library's connection, which speaks every method
        self._cwd = ""
        self._prompts: list[list[str]] = []
        self._cancelled = asyncio.Event()

    def on_connect(self, client: Any) -> None:
        self._client = client

    async def initialize(self, protocol_version: int, **about: Any) -> InitializeResponse:
        return InitializeResponse(protocol_version=self._version, agent_capabilities=AgentCapabilities())

    async def new_session(self, cwd: str, **about: Any) -> NewSessionResponse:
        self._cwd = cwd
        return NewSessionResponse(session_id="the-only-one")

    async def cancel(self, session_id: str, **about: Any) -> None:
        self._cancelled.set()

    async def prompt(self, prompt: list[TextContentBlock], session_id: str, **about: Any) -> PromptResponse:
        texts = [block.text for block in prompt]
        self._prompts.append(texts)
        self._cancelled.clear()
        wish = texts[-1].splitlines()[-1].strip()
        verb = max((verb for verb in self._table() if wish.startswith(verb)), key=len)
        stopped = await self._table()[verb](wish.removeprefix(verb).strip())
        # As it is, also if it is no reason that the protocol knows.
        return PromptResponse.model_construct(stop_reason=stopped or "end_turn")

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

    async def _tell(self, update: Any) -> None:
        await self._client.session_update("the-only-one", update)

    async def _say(self, words: str) -> None:
        for word in words.split():
            await self._tell(acp.update_agent_message_text(f"{word} "))

    async def _think(self, words: str) -> None:
        await self._tell(acp.update_agent_thought_text(words))
        await self._say("thought about it")

    async def _tell_prompt(self, _: str) -> None:
        told = {"pid": os.getpid(), "prompts": self._prompts}
        await self._tell(acp.update_agent_message_text(json.dumps(told)))

    async def _tell_where(self, _: str) -> None:
        secrets = [name for name in os.environ if name.startswith(("BACKSTAY", "PGPASS", "OUR_"))]
        told = {"session": self._cwd, "process": str(Path.cwd()), "environment": sorted(secrets)}
        await self._tell(acp.update_agent_message_text(json.dumps(told)))

    async def _begin(self, _: str = "") -> None:
        await self._tell(acp.start_tool_call("t1", "Write a.txt", kind="edit", status="pending", raw_input={"n": 1}))

    async def _use(self, _: str) -> None:
        await self._begin()
        await self._tell(acp.update_tool_call("t1", status="in_progress"))
        given = [acp.tool_content(acp.text_block("written"))]
        await self._tell(acp.update_tool_call("t1", status="completed", content=given))
        await self._say("done")

    async def _use_bit_by_bit(self, _: str) -> None:
        """As programs do that announce a call before they know what it is about."""
        await self._tell(acp.start_tool_call("t1", "Write", kind="edit", status="pending"))
        change = [acp.tool_diff_content("a.txt", "new", "old")]
        await self._tell(acp.update_tool_call("t1", title="Write a.txt", raw_input={"n": 1}, content=change))
        await self._tell(acp.update_tool_call("t1", status="completed", raw_output="written"))
        await self._tell(acp.update_tool_call("t1", status="completed", raw_output="again"))

    async def _fail(self, _: str) -> None:
        await self._begin()
        await self._tell(acp.update_tool_call("t1", status="failed", raw_output={"error": "disk full"}))
        await self._say("failed")

    async def _ask_first(self, _: str) -> None:
        await self._ask([ALWAYS, ONCE, NEVER])

    async def _ask_for_ever(self, _: str) -> None:
        await self._ask([ALWAYS, NEVER])

    async def _ask(self, options: list[PermissionOption]) -> None:
        about = ToolCallUpdate(tool_call_id="t1", title="Write a.txt", kind="edit", raw_input={"n": 1})
        answer = await self._client.request_permission(session_id="the-only-one", tool_call=about, options=options)
        chosen = answer.outcome
        if isinstance(chosen, AllowedOutcome) and chosen.option_id != "no":
            await self._tell(acp.update_tool_call("t1", status="completed", raw_output="written"))
        await self._say(chosen.option_id if isinstance(chosen, AllowedOutcome) else "cancelled")

    async def _wait(self, words: str) -> str:
        """Speak, then wait to be cancelled, and write down that it was."""
        await self._say(words or "waiting")
        await self._cancelled.wait()
        Path(self._cwd, "cancelled").touch()  # noqa: ASYNC240  # nothing else happens here
        return "cancelled"

    async def _be_deaf(self, _: str) -> None:
        """Begin something, and hear neither a wish to stop, nor a signal to end, nor that nobody is there any more."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        await self._begin()
        await self._tell(acp.update_agent_message_text(f"{os.getpid()}\n"))
        threading.Event().wait()  # nor does it see that its input has ended

    async def _die(self, _: str) -> None:
        await self._begin()
        await self._say("almost")
        sys.stderr.write("first\nthe disk is on \x1b[31mfire\n")
        sys.stderr.flush()
        os._exit(3)

    async def _kill(self, _: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async def _babble(self, _: str) -> None:
        """Say things on standard output that are no messages, and go on."""
        for line in ("npm notice", "{", "[1]", "42", '{"id":7}', '{"method":1}', '{"id":[1],"result":1}', "null"):
            sys.stdout.write(line + "\n")
        unknown = {"sessionId": "the-only-one", "update": {"sessionUpdate": "from_the_future", "n": 1}}
        for params in (unknown, 7, {"sessionId": "another", "update": unknown["update"]}):
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}) + "\n")
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "method": "nobody/knows", "params": {}}) + "\n")
        sys.stdout.flush()
        await self._say("all the same")

    async def _roar(self, _: str) -> None:
        os.set_blocking(sys.stdout.fileno(), True)
        sys.stdout.write("x" * (17 << 20) + "\n")
        sys.stdout.flush()
        await self._say("heard?")

    async def _stop(self, reason: str) -> str:
        await self._say("so far")
        return reason

    async def _err(self, _: str) -> None:
        raise acp.RequestError(-32603, "Internal error", {"details": "the model is away"})

    async def _plan(self, _: str) -> None:
        await self._tell(acp.update_plan([acp.plan_entry("look around")]))
        await self._tell(acp.update_user_message_text("an echo"))
        await self._tell(acp.update_agent_message(acp.image_block("aGk=", "image/png")))
        await self._say("planned")

    async def _cost(self, amount: str) -> None:
        cost = Cost(amount=float(amount), currency="USD")
        await self._tell(UsageUpdate(session_update="usage_update", used=100, size=1_000, cost=cost))
        await self._say("paid")

    async def _read(self, _: str) -> None:
        try:
            await self._client.read_text_file(path="/etc/passwd", session_id="the-only-one")
        except acp.RequestError as error:
            await self._say(f"refused {error.code}")

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
    """Lets nobody in who has not signed in."""

    async def new_session(self, cwd: str, **about: Any) -> NewSessionResponse:
        raise acp.RequestError.auth_required()


def main(mode: str = "") -> None:
    """Be an agent, or fail to be one."""
    if mode == "silent":
        asyncio.run(_be_silent())
    elif mode == "gone":
        sys.stderr.write("no licence\n")
        sys.exit(7)
    elif mode == "noisy":
        while True:
            sys.stdout.write("noise " * 1_000 + "\n")
    else:
        agent: Any = Stranger(1) if mode == "sign in" else Program(99 if mode == "of tomorrow" else 1)
        asyncio.run(acp.run_agent(agent))


if __name__ == "__main__":
    main(*sys.argv[1:2])
