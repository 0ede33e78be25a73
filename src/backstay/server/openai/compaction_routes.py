"""Compaction in the format of OpenAI's API: a shorter list of items for clients that keep the history themselves.

The items go into a session of their own, which is compacted like any other and then deleted.
"""

from itertools import takewhile
from typing import Any

import msgspec

from backstay.errors import AgentFailed, Conflict, SummaryTooLong
from backstay.model.ids import SessionId, message_of
from backstay.model.message import Message, NewMessage
from backstay.model.turn import TurnInfo
from backstay.runtime.owner_sessions import OwnerSessions
from backstay.server.http.api_request import ApiRequest, ApiResponse, NoInput
from backstay.server.http.operation import AnyOperation, Operation
from backstay.server.http.problems import Refused
from backstay.server.openai.encoding.items import items_of
from backstay.server.openai.encoding.response_encoder import usage_of
from backstay.server.openai.input_items.item_parser import with_raw_results
from backstay.server.openai.openai_errors import BadParameter, unsupported
from backstay.server.openai.openai_ids import response_name
from backstay.server.openai.response_routes import input_messages, previous_turn
from backstay.server.openai.session_routing import TEMPORARY_TTL, fork_after
from backstay.store import commands


class NewCompaction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The items to compact, or the response that ends the history to compact, or both.

    `model` is required and has no effect: the summariser of the server writes the summary.
    """

    model: str | None
    # Any: an item is a JSON object whose type field defines its content.
    input: str | list[dict[str, Any]] | None = None
    previous_response_id: str | None = None
    # Known but not supported, because it would change only the summary.
    instructions: str | None = None
    # These do not change the answer.
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: dict[str, Any] | None = None  # Any: arbitrary JSON that is not read
    service_tier: str | None = None


class CompactedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The items that replace the compacted ones: instructions, a `compaction` item, and the last exchange."""

    id: str
    object: str = "response.compaction"
    created_at: int
    output: list[dict[str, Any]]  # Any: an item is a JSON object whose type field defines its content
    usage: dict[str, Any]  # Any: the token counts of OpenAI's API


async def create(call: ApiRequest[NewCompaction, NoInput]) -> ApiResponse:
    """Return a summary of the items and the last exchange; all items if they cannot become shorter."""
    asked, owned = call.body, call.owned
    _check(asked)
    previous = await previous_turn(owned, asked.previous_response_id)
    messages = await input_messages(owned, asked.input)
    # Leading instructions are not summarised: the agent must read them word by word.
    leading = [] if previous is not None else [*takewhile(lambda message: message.role == "system", messages)]
    if previous is None and len(leading) == len(messages):
        raise BadParameter("input", "there is nothing to compact", hint="Send `input` or `previous_response_id`.")
    with call.service.streams.admitted(call.caller):
        return ApiResponse(value=await _compacted(owned, previous, messages[len(leading) :], leading))


def _check(asked: NewCompaction) -> None:
    if asked.instructions:
        raise unsupported("instructions", "the summariser of this server has its own")
    if asked.service_tier not in (None, "auto", "default"):
        raise unsupported("service_tier", "there is only one tier")


async def _compacted(
    owned: OwnerSessions, previous: TurnInfo | None, messages: list[NewMessage], leading: list[NewMessage]
) -> CompactedResponse:
    """Compact these messages, after the history up to the previous response, in a session of their own."""
    if previous is None:
        session = (await owned.run(commands.create(ttl=TEMPORARY_TTL, owner=owned.owner))).id
    else:
        session = (await fork_after(owned, previous, temporary=True)).id
    try:
        if messages:
            await owned.run(commands.record(session, with_raw_results(messages), owner=owned.owner))
        await _compact(owned, session)
        page = await owned.run(commands.messages(session, owner=owned.owner))
        return await _shown(owned, page.messages, leading)
    finally:
        await _delete(owned, session)


async def _compact(owned: OwnerSessions, session: SessionId) -> None:
    try:
        await owned.handle(session).compact(keep=0)
    except SummaryTooLong:
        return  # The items are short: the client continues with all of them.
    except AgentFailed as error:
        hint = "Nothing was changed: send the request again, or continue with all items."
        raise Refused(502, "agent_failed", str(error.args[0]), hint=hint) from error


async def _delete(owned: OwnerSessions, session: SessionId) -> None:
    try:
        await owned.run(commands.delete(session, owner=owned.owner))
    except Conflict:
        # This request was cancelled, and the summariser still runs. The session expires.
        return


async def _shown(owned: OwnerSessions, messages: tuple[Message, ...], leading: list[NewMessage]) -> CompactedResponse:
    # The first message is the summary, if there is one: its turn is the compaction.
    turn = next(message.turn for message in messages if message.turn is not None)
    read = await owned.run(commands.turn(turn, owner=owned.owner))
    kept = [
        Message(id=message_of(turn, index), position=index, turn=None, role=message.role, parts=message.parts, at=0)
        for index, message in enumerate(leading, len(messages))
    ]
    return CompactedResponse(
        id=response_name(turn),
        created_at=read.created_at // 1000,
        output=[item.value for item in items_of([*kept, *messages])],
        usage=usage_of(read.usage),
    )


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="POST",
        path="/v1/responses/compact",
        name="compact_response",
        summary="Replace the items of a history, except for its last exchange, by a summary. Nothing is stored.",
        run=create,
        body=NewCompaction,
        query=NoInput,
        answer=CompactedResponse,
        files=True,
    ),
)
