"""Programs of child processes with a built-in agent: a model behind a provider, or the scripted agent."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import backstay
from backstay import Text, Timing
from backstay.agents.adapters import AgentLike
from backstay.agents.blocking_agent import BlockingAgentTurn
from backstay.agents.provider.openai_compatible import OpenAICompatible
from backstay.agents.provider.transport.retry_policy import ProviderBackoff
from backstay.agents.scripted.scripted_agent import ScriptedAgent
from backstay.agents.tools import tool
from backstay.model.content import Body
from backstay.runtime.app import OnInterrupt
from tests.runtime_processes.app_programs import CHAT, LONG, report_trouble
from tests.runtime_processes.child_pipe import ChildPipe


def model(
    pipe: "Connection[Any, Any]",
    path: Path,
    base_url: str,
    payments: Path,
    *,
    on_interrupt: OnInterrupt = "leave",
    grace: float = 5.0,
) -> None:
    """Serve a model with two tools: one that pays and never returns, and one that looks something up."""
    line = ChildPipe(pipe)

    @tool
    def pay(amount: int, key: str) -> str:
        """Pay an amount."""
        with payments.open("a") as file:
            file.write(f"{key}\n")
        line.report("inside", "pay", key)
        threading.Event().wait()
        return f"paid {amount}"

    @tool
    def look(at: str) -> str:
        """Look at something, and report it."""
        line.report("inside", "look")
        return f"saw {at}"

    agent = OpenAICompatible(base_url, "tiny", tools=[pay, look], backoff=ProviderBackoff(retries=0))
    asyncio.run(_serve(line, path, agent, on_interrupt, Timing(grace=grace)))


def scripts(pipe: "Connection[Any, Any]", path: Path) -> None:
    """A blocking script: send a message to an agent that never ends, and wait for its outcome until Ctrl-C."""
    line = ChildPipe(pipe)
    # The tests may have been started with Ctrl-C ignored; the script must receive it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def agent(turn: BlockingAgentTurn) -> Iterator[Body]:
        yield Text("one ")
        threading.Event().wait()

    try:
        with backstay.open_blocking(path, agent=agent, notify=False, timing=Timing(grace=0.1)) as app:
            turn = app.session(CHAT).send("wait")
            line.report("sent", turn.id)
            turn.outcome()
    except KeyboardInterrupt:
        line.report("KeyboardInterrupt")


def script(pipe: "Connection[Any, Any]", path: Path, payments: Path, on_interrupt: OnInterrupt = "leave") -> None:
    """Serve the scripted agent, which may crash."""
    asyncio.run(
        _serve(ChildPipe(pipe), path, ScriptedAgent(payments=payments, allow_crash=True), on_interrupt, Timing())
    )


async def _serve(line: ChildPipe, path: Path, agent: AgentLike, on_interrupt: OnInterrupt, timing: Timing) -> None:
    line.listen()
    report_trouble(line)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with backstay.open(
        path, agent=agent, notify=False, lease_seconds=LONG, on_interrupt=on_interrupt, timing=timing
    ):
        line.report("open")
        await stop.wait()
    line.report("closed")
