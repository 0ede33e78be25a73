"""Programs of the clients' own languages and environments, run against a server of ours."""

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

from backstay import Text, ToolCall
from backstay.agents import directions_of
from backstay.agents.port import AgentTurn
from backstay.model.content import Body
from backstay.model.history.call_arguments import parse_arguments
from tests.server.running_server import RunningServer

HERE = Path(__file__).parent
PYTHON = HERE.parents[1] / ".venv-clients" / "bin" / "python"
MODULES = HERE / "node" / "node_modules"


class DirectedAgent:
    """Takes every parameter: repeats the ones that models sample by, or calls a tool of the client's with raw JSON."""

    takes = frozenset({"instructions", "tools", "tool_choice", "text", "stop", "seed"}) | {
        "presence_penalty",
        "frequency_penalty",
        "temperature",
    }

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        """Answer by the first word of the input."""
        given, text = directions_of(turn.input.parts), turn.input.text
        word, _, rest = text.partition(" ")
        if word == "call":
            yield ToolCall(f"call_{turn.id}", given.tools[0].name, parse_arguments(rest), client=True)
        elif given.stop:
            penalties = f"presence {given.presence_penalty} frequency {given.frequency_penalty}"
            yield Text(f"stop {' '.join(given.stop)} seed {given.seed} {penalties}")
        else:
            yield Text(text)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


def run_program(command: list[str | Path], folder: Path, server: RunningServer | None = None) -> str:
    """Run a program to its end, which must be a success; what it wrote."""
    variables = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG")} | {"HOME": str(folder)}
    variables["PATH"] = f"{PYTHON.parent}:{variables['PATH']}"
    if server is not None:
        variables |= {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": server.token()}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
    return done.stdout + done.stderr
