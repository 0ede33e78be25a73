"""An observer of an app sees each run of a tool between the intent and the result."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import backstay
from backstay import Observer, OpenTurn, Text, ToolCall, open_store
from backstay.agents import AgentTurn, ToolFailed, tool
from backstay.model.content import Body

# The runtime reports to observers: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")


@tool
def pay(amount: int) -> str:
    """Pay an amount; 0 is refused."""
    if not amount:
        raise ToolFailed("nothing to pay")
    return f"paid {amount}"


async def cashier(turn: AgentTurn) -> AsyncIterator[Body]:
    """Pays what the input says."""
    try:
        yield Text(str(await turn.call(pay, {"amount": int(turn.input.text)})))
    except ToolFailed as failure:
        yield Text(str(failure.args[0]))


class Diary(Observer):
    """Writes down each report, and the effect that the ledger has at that moment."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lines: list[tuple[str, str, str, str]] = []

    def tool_started(self, opened: OpenTurn, call: ToolCall) -> None:
        self._note("started", opened, call)

    def tool_ended(self, opened: OpenTurn, call: ToolCall) -> None:
        self._note("ended", opened, call)

    def _note(self, report: str, opened: OpenTurn, call: ToolCall) -> None:
        with open_store(self._path) as store:
            (record,) = [one for one in store.calls(opened.id, owner="local") if one.call == call.id]
        self.lines.append((report, call.name, str(call.arguments), record.effect))


@pytest.mark.parametrize("amount", [5, 0])
async def test_an_observer_sees_a_tool_after_its_intent_and_before_its_result(path: Path, amount: int) -> None:
    diary = Diary(path)
    async with backstay.open(path, agent=cashier) as app:
        app.observe_with(diary)
        turn = await (await app.session()).send(str(amount))
        await turn.outcome()

        assert [call.effect for call in await turn.calls()] == ["returned"]
    call = ("pay", str({"amount": amount}), "called")
    assert diary.lines == [("started", *call), ("ended", *call)]
