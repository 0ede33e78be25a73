"""Built-in tools: a clock and a calculator, useful to every agent and harmless to run twice."""

from datetime import UTC, datetime

from backstay.agents.arithmetic import calculate
from backstay.agents.tools import Tool, tool
from backstay.clock import Clock, SystemClock


@tool(idempotent=True)
def calculator(expression: str) -> str:
    """Work out an arithmetic expression such as 2+3*4. Knows + - * / // % ** and parentheses."""
    return str(calculate(expression))


def clock_of(clock: Clock) -> Tool:
    """The tool `clock`, reading this clock."""

    def tell() -> str:
        moment = datetime.fromtimestamp(clock.now() / 1000, UTC)
        return moment.isoformat(timespec="seconds").replace("+00:00", "Z")

    return Tool(name="clock", function=tell, description="The current date and time in UTC.", idempotent=True)


clock = clock_of(SystemClock())
