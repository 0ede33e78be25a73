"""Built-in tools: a clock, a calculator and a search, useful to every agent and harmless to run twice."""

from datetime import UTC, datetime

from backstay.agents.arithmetic import calculate
from backstay.agents.port import AgentTurn
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


def search_in(turn: AgentTurn) -> Tool:
    """The tool `search`: looks through the sessions of the person whose turn this is."""

    async def search(query: str) -> str:
        page = await turn.search(query)
        found = [f"{hit.title or hit.session}: {hit.snippet.text}" for hit in page.hits]
        return "\n".join(found) or "nothing was found"

    return Tool(
        name="search", function=search, description="Search everything that was said in your sessions.", idempotent=True
    )


clock = clock_of(SystemClock())
