"""The permission requests of a turn: each is answered, and none outlives the turn."""

import asyncio
from collections.abc import Mapping
from typing import Any

from acp.schema import (
    AllowedOutcome,
    PermissionOption,
    RequestPermissionRequest,
    RequestPermissionResponse,
    ToolCallUpdate,
)

from backstay.agents.acp.permission import PendingPermissions
from backstay.agents.tools import Tool
from backstay.model.content import Json
from tests.agents.fake_turn import LooseTurn
from tests.runtime.controlled_agents import Gate

REQUEST = RequestPermissionRequest(
    session_id="s",
    tool_call=ToolCallUpdate(tool_call_id="1"),
    options=[
        PermissionOption(kind="allow_once", name="Allow", option_id="allow"),
        PermissionOption(kind="reject_once", name="Reject", option_id="reject"),
    ],
)


def new_answer() -> "asyncio.Future[RequestPermissionResponse]":
    return asyncio.get_running_loop().create_future()


class BrokenTurn(LooseTurn):
    """A turn whose ledger fails unexpectedly."""

    async def call(
        self, tool: Tool, arguments: Mapping[str, Json], *, run_again: bool = False, id: str | None = None
    ) -> Any:
        raise RuntimeError("the ledger is broken")


class SlowTurn(LooseTurn):
    """A turn without a decision; a call needs a moment to end."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.ended = Gate(), False

    async def call(
        self, tool: Tool, arguments: Mapping[str, Json], *, run_again: bool = False, id: str | None = None
    ) -> Any:
        try:
            await self.gate.stop_here()
        finally:
            await asyncio.sleep(0)
            self.ended = True


async def test_a_request_that_fails_unexpectedly_is_denied() -> None:
    questions, answer = PendingPermissions(BrokenTurn(), "ask"), new_answer()

    questions.ask(REQUEST, {"call": "1"}, answer)

    outcome = (await answer).outcome
    assert isinstance(outcome, AllowedOutcome)
    assert (outcome.option_id, questions.denied) == ("reject", ["1"])
    await questions.drop()


async def test_the_requests_of_a_turn_have_ended_when_they_are_dropped() -> None:
    turn = SlowTurn()
    questions, answer = PendingPermissions(turn, "ask"), new_answer()
    questions.ask(REQUEST, {"call": "1"}, answer)
    await turn.gate.reached()

    await questions.drop()

    assert turn.ended
    assert not answer.done()
