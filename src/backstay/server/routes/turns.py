"""Turns: submitted, read, steered, cancelled; those that wait, and the tool calls that ask."""

from typing import Annotated

import msgspec
from msgspec import Meta

from backstay.model.ids import MessageId, SessionId, TurnId
from backstay.model.message import NewMessage
from backstay.model.turn import Call as ToolCallLine
from backstay.model.turn import IfBusy, Turn
from backstay.runtime.turn import TurnHandle
from backstay.server.call import Answer, Call, Nothing
from backstay.server.operation import AnyOperation, Operation
from backstay.server.routes.content import Said, content_of
from backstay.store.port import Store

Name = Annotated[str, Meta(min_length=1, max_length=256)]


class NewTurn(Said, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something to say, to whom, and what to do if somebody else is speaking."""

    agent: Name = "default"
    if_busy: IfBusy = "enqueue"


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Finished messages of an agent that runs elsewhere."""

    messages: Annotated[tuple[NewMessage, ...], Meta(min_length=1)]


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that is durable now. `repeated`: this request was accepted before, and this is its turn."""

    id: TurnId
    session: SessionId
    repeated: bool
    forked_from: SessionId | None = None


class RecordedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that are durable now; none are named if they wait, or were recorded before."""

    turn: Turn
    messages: tuple[MessageId, ...]
    repeated: bool


class Turns(msgspec.Struct, frozen=True, kw_only=True):
    """Turns, in the order they will run."""

    turns: tuple[Turn, ...]


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ids of all turns that wait, in the order they shall run."""

    turns: tuple[str, ...]


class Calls(msgspec.Struct, frozen=True, kw_only=True):
    """A turn's tool calls, and what is known of their effects."""

    calls: tuple[ToolCallLine, ...]


class Decision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether a tool may run. With the hash of the arguments that were shown, it holds for those and no others."""

    approved: bool
    arguments_hash: str | None = None


def submitted(turn: TurnHandle) -> Answer:
    """A turn that was accepted, and where to read it."""
    value = Submitted(id=turn.id, session=turn.session, repeated=turn.repeated, forked_from=turn.forked_from)
    return Answer(value=value, headers={"location": f"/api/turns/{turn.id}"})


async def submit(call: Call[NewTurn, Nothing]) -> Answer:
    """Accept something to say; durable when this is answered."""
    turn = await call.owned.session(call.session).send(
        content_of(call.body),
        agent=call.body.agent,
        if_busy=call.body.if_busy,
        request_id=call.request_id,
        expect_revision=call.expected_revision,
    )
    return submitted(turn)


async def steer(call: Call[Said, Nothing]) -> Answer:
    """Say something to the turn that runs."""
    turn = await call.owned.session(call.session).steer(content_of(call.body), request_id=call.request_id)
    return submitted(turn)


async def record(call: Call[Record, Nothing]) -> Answer:
    """Add what was said elsewhere."""
    recorded = await call.owned.session(call.session).record(
        call.body.messages, request_id=call.request_id, expect_revision=call.expected_revision
    )
    return Answer(value=RecordedTurn(turn=recorded.turn, messages=recorded.messages, repeated=recorded.repeated))


async def read_turn(call: Call[Nothing, Nothing]) -> Answer:
    """The turn as it is now."""
    return Answer(value=await call.owned.read(Store.turn, call.turn))


async def cancel(call: Call[Nothing, Nothing]) -> Answer:
    """Stop a turn wherever it runs; answered once it has ended."""
    turn = await call.owned.turn(call.turn)
    await turn.cancel()
    return Answer(value=await turn.read())


async def resume(call: Call[Nothing, Nothing]) -> Answer:
    """Go on where an interrupted turn stopped."""
    return submitted(await call.owned.resume(call.turn))


async def read_waiting(call: Call[Nothing, Nothing]) -> Answer:
    """What waits."""
    return Answer(value=Turns(turns=await call.owned.read(Store.waiting, call.session)))


async def reorder(call: Call[Order, Nothing]) -> Answer:
    """Let what waits run in another order."""
    order = [TurnId(turn) for turn in call.body.turns]
    turns = await call.owned.write(Store.reorder, call.session, order, expect_revision=call.expected_revision)
    return Answer(value=Turns(turns=turns))


async def edit_waiting(call: Call[Said, Nothing]) -> Answer:
    """Say something else instead, before anybody has heard it."""
    return Answer(value=await call.owned.write(Store.edit_waiting, call.turn, content_of(call.body)))


async def withdraw(call: Call[Nothing, Nothing]) -> Answer:
    """Take it back before anybody has heard it."""
    return Answer(value=await call.owned.write(Store.withdraw, call.turn))


async def read_calls(call: Call[Nothing, Nothing]) -> Answer:
    """The turn's tool calls."""
    return Answer(value=Calls(calls=await call.owned.read(Store.calls, call.turn)))


async def decide(call: Call[Decision, Nothing]) -> Answer:
    """Allow or forbid a tool call that asks."""
    verb = Store.approve if call.body.approved else Store.deny
    line = await call.owned.write(verb, call.turn, call.tool_call, arguments_hash=call.body.arguments_hash)
    return Answer(value=line)


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="POST",
        path="/api/sessions/{session}/turns",
        name="submit_turn",
        summary="Say something. The answer means it is durable; what comes of it is told on the stream.",
        run=submit,
        body=NewTurn,
        query=Nothing,
        answer=Submitted,
        status=202,
        revision=True,
        request_id=True,
    ),
    Operation(
        method="POST",
        path="/api/sessions/{session}/steer",
        name="steer_turn",
        summary="Say something to the turn that runs; if it never takes it, it is the next turn.",
        run=steer,
        body=Said,
        query=Nothing,
        answer=Submitted,
        status=202,
        request_id=True,
    ),
    Operation(
        method="POST",
        path="/api/sessions/{session}/record",
        name="record_messages",
        summary="Add finished messages of an agent that runs elsewhere, as one turn.",
        run=record,
        body=Record,
        query=Nothing,
        answer=RecordedTurn,
        revision=True,
        request_id=True,
    ),
    Operation(
        method="GET",
        path="/api/sessions/{session}/waiting",
        name="read_waiting",
        summary="The turns that wait, in the order they will run.",
        run=read_waiting,
        body=Nothing,
        query=Nothing,
        answer=Turns,
    ),
    Operation(
        method="PUT",
        path="/api/sessions/{session}/waiting",
        name="reorder_waiting",
        summary="Let the turns that wait run in this order.",
        run=reorder,
        body=Order,
        query=Nothing,
        answer=Turns,
        revision=True,
    ),
    Operation(
        method="GET",
        path="/api/turns/{turn}",
        name="read_turn",
        summary="A turn as it is now.",
        run=read_turn,
        body=Nothing,
        query=Nothing,
        answer=Turn,
    ),
    Operation(
        method="PATCH",
        path="/api/turns/{turn}",
        name="edit_waiting_turn",
        summary="Change the input of a turn that still waits.",
        run=edit_waiting,
        body=Said,
        query=Nothing,
        answer=Turn,
    ),
    Operation(
        method="DELETE",
        path="/api/turns/{turn}",
        name="withdraw_turn",
        summary="Take back a turn that still waits.",
        run=withdraw,
        body=Nothing,
        query=Nothing,
        answer=Turn,
    ),
    Operation(
        method="POST",
        path="/api/turns/{turn}/cancel",
        name="cancel_turn",
        summary="Stop a turn, wherever it runs. What was said is kept. Answered once it has ended.",
        run=cancel,
        body=Nothing,
        query=Nothing,
        answer=Turn,
    ),
    Operation(
        method="POST",
        path="/api/turns/{turn}/resume",
        name="resume_turn",
        summary="Go on with the last turn, if it was interrupted: same input, same ledger, nothing said twice.",
        run=resume,
        body=Nothing,
        query=Nothing,
        answer=Submitted,
        status=202,
    ),
    Operation(
        method="GET",
        path="/api/turns/{turn}/calls",
        name="read_calls",
        summary="A turn's tool calls, and what is known of their effects.",
        run=read_calls,
        body=Nothing,
        query=Nothing,
        answer=Calls,
    ),
    Operation(
        method="PUT",
        path="/api/turns/{turn}/calls/{call}/decision",
        name="decide_call",
        summary="Allow or forbid a tool call that asks.",
        run=decide,
        body=Decision,
        query=Nothing,
        answer=ToolCallLine,
    ),
)
