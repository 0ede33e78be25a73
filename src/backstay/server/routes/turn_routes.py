"""Turn operations: submit, read, steer, cancel, resume; the queue of waiting turns; approval of tool calls."""

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from backstay.errors import InvalidPayload
from backstay.model.addresses.address import Address
from backstay.model.ids import MessageId, SessionId, TurnId
from backstay.model.session import SessionInfo, Ttl
from backstay.model.turn import IfBusy, ToolCallRecord, TurnInfo, TurnState
from backstay.runtime.turn_handle import Turn
from backstay.server.auth.agent_roots import client_address
from backstay.server.http.api_request import ApiRequest, ApiResponse, NoInput
from backstay.server.http.operation import AnyOperation, Operation
from backstay.server.http.problems import invalid
from backstay.server.routes.message_content import FinishedMessage, MessageBody, content_of, message_of
from backstay.store import commands

B = TypeVar("B")
Q = TypeVar("Q")

Name = Annotated[str, Meta(min_length=1, max_length=256)]


class NewTurn(MessageBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An input, the agent that answers it, and what happens if another turn is running.

    An agent that no process serves or has served is rejected, unless `allow_unserved` queues the message for it. With
    null as its agent, the agent of the last turn of the session answers.
    """

    agent: Name | None = "default"
    if_busy: IfBusy = "enqueue"
    allow_unserved: bool = False


class SentTurn(NewTurn, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An input for a session, for an address whose session is created if there is none, or else for a new session."""

    session: SessionId | None = None
    address: Annotated[str, Meta(max_length=8_192)] | None = None
    ttl: Ttl | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Finished messages of an agent that runs elsewhere."""

    messages: Annotated[tuple[FinishedMessage, ...], Meta(min_length=1)]
    if_busy: IfBusy = "enqueue"


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that is now durable. `repeated`: the same request was accepted before, and this is its turn.

    `state` is "running" or "waiting"; `event` is the number of the first event of the turn.
    """

    id: TurnId
    session: SessionId
    repeated: bool
    state: TurnState
    event: int
    forked_from: SessionId | None = None


class RecordedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Recorded messages that are now durable. `messages` is empty if they wait, or were recorded before."""

    turn: TurnInfo
    session: SessionInfo
    messages: tuple[MessageId, ...]
    repeated: bool


class TurnList(msgspec.Struct, frozen=True, kw_only=True):
    """Turns, in the order in which they will run."""

    turns: tuple[TurnInfo, ...]


class QueueOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ids of all waiting turns, in the order in which they are to run."""

    turns: tuple[str, ...]


class CallList(msgspec.Struct, frozen=True, kw_only=True):
    """The tool calls of a turn, with their results."""

    calls: tuple[ToolCallRecord, ...]


class Decision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The decision on a tool call. With `arguments_hash`, it applies only if the arguments have this hash.

    With `run_again`, a call of an interrupted turn that may have run already may run once more.
    """

    approved: bool
    arguments_hash: str | None = None
    run_again: bool = False


def submitted(turn: Turn) -> ApiResponse:
    """The response for an accepted turn, with its location."""
    value = Submitted(
        id=turn.id,
        session=turn.session,
        repeated=turn.repeated,
        state=turn.accepted_state,
        event=turn.first_event,
        forked_from=turn.forked_from,
    )
    return ApiResponse(value=value, headers={"location": f"/api/turns/{turn.id}"})


async def submit(call: ApiRequest[NewTurn, NoInput]) -> ApiResponse:
    """Submit an input; it is durable when the response is sent."""
    turn = await call.owned.handle(call.session).send(
        content_of(call.body),
        agent=call.body.agent,
        if_busy=call.body.if_busy,
        request_id=call.request_id,
        expect_revision=call.expected_revision,
        allow_unserved=call.body.allow_unserved,
    )
    return submitted(turn)


async def send(call: ApiRequest[SentTurn, NoInput]) -> ApiResponse:
    """Submit an input to a session, an address or a new session; it is durable when the response is sent."""
    sent = call.body
    turn = await call.owned.send(
        "new" if sent.session is None and sent.address is None else await target(call, sent.session, sent.address),
        content_of(sent),
        agent=sent.agent,
        if_busy=sent.if_busy,
        request_id=call.request_id,
        expect_revision=call.expected_revision,
        ttl=sent.ttl,
        allow_unserved=sent.allow_unserved,
    )
    return submitted(turn)


async def target(call: ApiRequest[B, Q], session: SessionId | None, address: str | None) -> Address | SessionId:
    """Return the destination of a message: the session, or the parsed address. Exactly one of them must be given."""
    if session is not None and address is None:
        return session
    if address is None or session is not None:
        raise invalid("pass either `session` or `address`", hint='{"session": "ses_…", "text": "hello"}')
    return await client_address(
        address, host=call.owned.host, roots=call.service.agent_roots, operator=call.caller.operator
    )


async def steer(call: ApiRequest[MessageBody, NoInput]) -> ApiResponse:
    """Submit an input for the running turn."""
    turn = await call.owned.handle(call.session).steer(content_of(call.body), request_id=call.request_id)
    return submitted(turn)


async def record(call: ApiRequest[Record, NoInput]) -> ApiResponse:
    """Record messages of an agent that runs elsewhere."""
    recorded = await call.owned.handle(call.session).record(
        [message_of(message) for message in call.body.messages],
        request_id=call.request_id,
        if_busy=call.body.if_busy,
        expect_revision=call.expected_revision,
    )
    return ApiResponse(
        value=RecordedTurn(
            turn=recorded.turn, session=recorded.session, messages=recorded.messages, repeated=recorded.repeated
        )
    )


async def read_turn(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Return the turn."""
    return ApiResponse(value=await call.run(commands.turn(call.turn, owner=call.owner)))


async def cancel(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Cancel a turn, in whichever process it runs; respond when it has ended."""
    turn = await call.owned.turn(call.turn)
    await turn.cancel()
    return ApiResponse(value=await turn.read())


async def resume(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Resume an interrupted turn."""
    return submitted(await call.owned.resume(call.turn))


async def resume_session(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Resume the last turn of a session."""
    return submitted(await call.owned.handle(call.session).resume())


async def read_waiting(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """List the waiting turns."""
    return ApiResponse(value=TurnList(turns=await call.run(commands.waiting(call.session, owner=call.owner))))


async def reorder(call: ApiRequest[QueueOrder, NoInput]) -> ApiResponse:
    """Change the order of the waiting turns."""
    order = [TurnId(turn) for turn in call.body.turns]
    turns = await call.run(
        commands.reorder(call.session, order, expect_revision=call.expected_revision, owner=call.owner)
    )
    return ApiResponse(value=TurnList(turns=turns))


async def edit_waiting(call: ApiRequest[MessageBody, NoInput]) -> ApiResponse:
    """Replace the input of a waiting turn."""
    return ApiResponse(value=await call.run(commands.edit_waiting(call.turn, content_of(call.body), owner=call.owner)))


async def withdraw(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Withdraw a waiting turn."""
    return ApiResponse(value=await call.run(commands.withdraw(call.turn, owner=call.owner)))


async def release(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Release a held turn, so that a worker may start it."""
    return ApiResponse(value=await call.run(commands.release(call.turn, owner=call.owner)))


async def read_calls(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """List the turn's tool calls."""
    return ApiResponse(value=CallList(calls=await call.run(commands.calls(call.turn, owner=call.owner))))


async def decide(call: ApiRequest[Decision, NoInput]) -> ApiResponse:
    """Approve or deny a tool call."""
    decision = call.body
    if not decision.approved:
        if decision.run_again:
            raise InvalidPayload(
                "run_again needs approved to be true",
                hint="A call that may have run stays rejected unless it is approved again.",
            )
        return ApiResponse(
            value=await call.run(
                commands.deny(call.turn, call.tool_call, arguments_hash=decision.arguments_hash, owner=call.owner)
            )
        )
    record = await call.run(
        commands.approve(
            call.turn,
            call.tool_call,
            arguments_hash=decision.arguments_hash,
            run_again=decision.run_again,
            owner=call.owner,
        )
    )
    return ApiResponse(value=record)


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="POST",
        path="/api/turns",
        name="send_turn",
        summary="Submit a message to a session, an address or a new session. The response means that it is durable.",
        run=send,
        body=SentTurn,
        query=NoInput,
        answer=Submitted,
        status=202,
        problems=(404,),
        revision=True,
        request_id=True,
    ),
    Operation(
        method="POST",
        path="/api/sessions/{session}/turns",
        name="submit_turn",
        summary="Submit a message. The response means that it is durable; the answer arrives on the stream.",
        run=submit,
        body=NewTurn,
        query=NoInput,
        answer=Submitted,
        status=202,
        revision=True,
        request_id=True,
    ),
    Operation(
        method="POST",
        path="/api/sessions/{session}/steer",
        name="steer_turn",
        summary="Steer the running turn. An input that the turn does not take becomes the next turn.",
        run=steer,
        body=MessageBody,
        query=NoInput,
        answer=Submitted,
        status=202,
        request_id=True,
    ),
    Operation(
        method="POST",
        path="/api/sessions/{session}/record",
        name="record_messages",
        summary="Record finished messages of an agent that runs elsewhere, as one turn.",
        run=record,
        body=Record,
        query=NoInput,
        answer=RecordedTurn,
        revision=True,
        request_id=True,
    ),
    Operation(
        method="GET",
        path="/api/sessions/{session}/waiting",
        name="read_waiting",
        summary="List the waiting turns, in the order in which they will run.",
        run=read_waiting,
        body=NoInput,
        query=NoInput,
        answer=TurnList,
    ),
    Operation(
        method="PUT",
        path="/api/sessions/{session}/waiting",
        name="reorder_waiting",
        summary="Reorder the waiting turns.",
        run=reorder,
        body=QueueOrder,
        query=NoInput,
        answer=TurnList,
        revision=True,
    ),
    Operation(
        method="GET",
        path="/api/turns/{turn}",
        name="read_turn",
        summary="Get a turn.",
        run=read_turn,
        body=NoInput,
        query=NoInput,
        answer=TurnInfo,
    ),
    Operation(
        method="PATCH",
        path="/api/turns/{turn}",
        name="edit_waiting_turn",
        summary="Change the input of a waiting turn.",
        run=edit_waiting,
        body=MessageBody,
        query=NoInput,
        answer=TurnInfo,
    ),
    Operation(
        method="DELETE",
        path="/api/turns/{turn}",
        name="withdraw_turn",
        summary="Withdraw a waiting turn.",
        run=withdraw,
        body=NoInput,
        query=NoInput,
        answer=TurnInfo,
    ),
    Operation(
        method="POST",
        path="/api/turns/{turn}/release",
        name="release_turn",
        summary="Release an imported turn that is held, so that it can start.",
        run=release,
        body=NoInput,
        query=NoInput,
        answer=TurnInfo,
    ),
    Operation(
        method="POST",
        path="/api/turns/{turn}/cancel",
        name="cancel_turn",
        summary="Cancel a turn, in whichever process it runs. Its output is kept. Responds when the turn has ended.",
        run=cancel,
        body=NoInput,
        query=NoInput,
        answer=TurnInfo,
    ),
    Operation(
        method="POST",
        path="/api/turns/{turn}/resume",
        name="resume_turn",
        summary="Resume the last turn, if it was interrupted, with the same input and ledger. No output is repeated.",
        run=resume,
        body=NoInput,
        query=NoInput,
        answer=Submitted,
        status=202,
    ),
    Operation(
        method="POST",
        path="/api/sessions/{session}/resume",
        name="resume_session",
        summary="Resume the last turn of the session, if it was interrupted.",
        run=resume_session,
        body=NoInput,
        query=NoInput,
        answer=Submitted,
        status=202,
    ),
    Operation(
        method="GET",
        path="/api/turns/{turn}/calls",
        name="read_calls",
        summary="List the tool calls of a turn, with their results.",
        run=read_calls,
        body=NoInput,
        query=NoInput,
        answer=CallList,
    ),
    Operation(
        method="PUT",
        path="/api/turns/{turn}/calls/{call}/decision",
        name="decide_call",
        summary="Approve or deny a tool call. An interrupted turn then continues.",
        run=decide,
        body=Decision,
        query=NoInput,
        answer=ToolCallRecord,
    ),
)
