"""An agent that says, thinks, calls and returns nothing but hostile text, in every place that text can take."""

from collections.abc import AsyncIterator

from backstay import Text
from backstay.agents.port import AgentTurn
from backstay.errors import AgentFailed
from backstay.model.content import Body, Custom, Thought, ToolCall, ToolResult
from tests.page.payloads import PAYLOADS


async def hostile(turn: AgentTurn) -> AsyncIterator[Body]:
    """Every payload, or a `few`, as words, thoughts, names of tools, arguments, output, errors and something custom."""
    for number, payload in enumerate(PAYLOADS[:5] if turn.input.text == "few" else PAYLOADS):
        yield Thought(payload)
        yield Text(f"{payload}\n\n")
        yield ToolCall(f"c{number}", payload[:200], {payload: payload})
        yield ToolResult(f"c{number}", {payload: payload} if number % 2 else payload, error=number % 3 == 0)
        yield Custom(payload[:200], payload)
    if "fail" in turn.input.text:
        raise AgentFailed(PAYLOADS[1])
