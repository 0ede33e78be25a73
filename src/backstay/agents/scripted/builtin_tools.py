"""Built-in tools: a clock, a calculator and a search. All are idempotent."""

from datetime import UTC, datetime

from backstay.agents.port import AgentTurn
from backstay.agents.scripted.arithmetic import calculate
from backstay.agents.tools import Tool, ToolFailed, tool
from backstay.clock import Clock, SystemClock


@tool(idempotent=True)
def calculator(expression: str) -> str:
    """Evaluate an arithmetic expression such as 2+3*4. Supports + - * / // % ** and parentheses."""
    try:
        return str(calculate(expression))
    except ValueError as error:
        raise ToolFailed(str(error)) from error


def clock_of(clock: Clock) -> Tool:
    """Return the tool `clock`, which reads this clock."""

    def read_clock() -> str:
        moment = datetime.fromtimestamp(clock.now() / 1000, UTC)
        return moment.isoformat(timespec="seconds").replace("+00:00", "Z")

    return Tool(name="clock", function=read_clock, description="The current date and time in UTC.", idempotent=True)


def search_in(turn: AgentTurn) -> Tool:
    """Return the tool `search`, which searches the sessions of the turn's owner."""

    async def search(query: str) -> str:
        page = await turn.search(query)
        found = [f"{hit.title or hit.session}: {hit.snippet.text}" for hit in page.hits]
        return "\n".join(found) or "nothing was found"

    return Tool(name="search", function=search, description="Search the messages of your sessions.", idempotent=True)


clock = clock_of(SystemClock())
