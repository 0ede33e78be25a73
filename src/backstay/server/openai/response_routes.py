"""Responses: turns in the format of the OpenAI-compatible API. Create, stream, resume, cancel, delete."""

from contextlib import nullcontext, suppress
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from backstay.errors import NotFound
from backstay.model.content import Json
from backstay.model.ids import SessionId
from backstay.model.message import NewMessage
from backstay.model.turn import TurnInfo
from backstay.runtime.owner_sessions import OwnerSessions
from backstay.runtime.turn_handle import Turn
from backstay.server.http.api_request import ApiRequest, ApiResponse, NoInput
from backstay.server.http.operation import AnyOperation, Operation
from backstay.server.http.problems import Refused
from backstay.server.openai.conversation_routes import check_metadata
from backstay.server.openai.encoding.items import items_of
from backstay.server.openai.encoding.response_encoder import ResponseEncoder, encode_turn
from backstay.server.openai.encoding.response_stream import (
    SESSION_HEADER,
    ResponseStreamEncoder,
    TurnStream,
    until_over,
)
from backstay.server.openai.encoding.turn_events import events_of, recorded_in, responding, response_not_found
from backstay.server.openai.input_items.item_files import store_files, without_files
from backstay.server.openai.input_items.item_parser import messages_from
from backstay.server.openai.input_items.item_references import resolve_references
from backstay.server.openai.openai_errors import BadParameter, unsupported
from backstay.server.openai.openai_ids import response_name, session_named, turn_named
from backstay.server.openai.paging import ItemListQuery, ItemPage, pick
from backstay.server.openai.parameters import agent_named, check_directions, choice_of, client_tools, turn_input_of
from backstay.server.openai.session_routing import RequestedResponse, accept
from backstay.server.openai.stored_request import StoredRequest
from backstay.store import commands

SequenceNumber = Annotated[int, Meta(ge=-1, le=1 << 53)]
# Any: an item, a tool and a format are JSON objects whose type field defines their content.
Object = dict[str, Any]


class ConversationParam(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A conversation, by its id."""

    id: str


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a stream. Obfuscation is never added."""

    include_obfuscation: bool | None = None
    include_usage: bool | None = None


class NewResponse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The input, the agent (`model`) and the parameters of a response. Unknown parameters are rejected."""

    model: str | None = None
    input: str | list[Object] | None = None
    instructions: str | None = None
    conversation: str | ConversationParam | None = None
    previous_response_id: str | None = None
    stream: bool | None = None
    background: bool | None = None
    store: bool | None = None
    metadata: dict[str, str] | None = None
    tools: list[Object] | None = None
    tool_choice: str | Object | None = None
    parallel_tool_calls: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    reasoning: Object | None = None
    text: Object | None = None
    truncation: Literal["auto", "disabled"] | None = None
    # These do not change the answer. They are ignored, or repeated in the response.
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: Object | None = None
    include: list[str] | None = None
    stream_options: StreamOptions | None = None
    service_tier: str | None = None
    # These are known but not supported. They are rejected unless they have no effect.
    max_tool_calls: int | None = None
    top_logprobs: int | None = None
    prompt: Object | None = None
    context_management: list[Object] | None = None
    moderation: Json = None


_REFUSED = ("max_tool_calls", "top_logprobs", "prompt", "context_management", "moderation")


class RetrieveQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether to stream the response, and after which event."""

    stream: bool = False
    starting_after: SequenceNumber | None = None
    include_obfuscation: bool | None = None
    include: str | None = msgspec.field(default=None, name="include[]")


class ResponseFrame(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a streamed response. `event` is the type in `data`, which is an event of OpenAI's Responses API."""

    event: str
    data: dict[str, Any]  # Any: the type of the event defines its other fields


class DeletedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The confirmation of a deletion."""

    id: str
    object: str = "response"
    deleted: bool = True


class Found(NamedTuple):
    """A response: its turn, and its encoded events so far."""

    turn: TurnInfo
    encoder: ResponseEncoder


async def create(call: ApiRequest[NewResponse, NoInput]) -> ApiResponse:
    """Create a response; return it when it has ended, as a stream, or at once for one in the background."""
    asked, owned = call.body, call.owned
    agent = agent_named(call.service, asked.model)
    request, conversation, previous = (
        _request(call, agent),
        _conversation(asked),
        await previous_turn(owned, asked.previous_response_id),
    )
    words = turn_input_of(await _input_messages(owned, asked))
    wanted = RequestedResponse(agent, words, request, call.request_id)
    temporary = asked.store is False and conversation is None
    at_once = asked.background is True and not asked.stream
    with nullcontext() if at_once else call.service.streams.admitted(call.caller):
        turn = await accept(owned, wanted, conversation=conversation, previous=previous, temporary=temporary)
        seen = await turn.read()
    forget = partial(delete_soon, owned, turn) if temporary else None
    if asked.stream:
        return ApiResponse(
            app=TurnStream(call.service, call.caller, seen, ResponseStreamEncoder(seen), afterwards=forget)
        )
    try:
        return await _answered(call, turn)
    finally:
        if forget is not None:
            forget()


async def _answered(call: ApiRequest[NewResponse, NoInput], turn: Turn) -> ApiResponse:
    """The response when it has ended, or at once if it runs in the background."""
    if not call.body.background:
        await until_over(call, turn)
    return _shown(await _encoded(call.owned, await turn.read()))


async def retrieve(call: ApiRequest[NoInput, RetrieveQuery]) -> ApiResponse:
    """The response in its current state, or a stream of its events after a number."""
    found = await _find(call.owned, call.named("response_id"))
    after = call.query.starting_after
    if not call.query.stream:
        if after is not None:
            raise BadParameter(
                "starting_after", "starting_after needs stream=true", hint="Use it together with stream=true."
            )
        return _shown(found)
    if after is not None:
        _check_resumable(found, after)
    if call.request.method == "HEAD":
        return _shown(found)  # a HEAD request opens no stream
    call.service.streams.admit(call.caller)
    encoder = ResponseStreamEncoder(found.turn, -1 if after is None else after)
    return ApiResponse(app=TurnStream(call.service, call.caller, found.turn, encoder))


async def cancel(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Cancel the response, in whichever process it runs; respond when it has ended."""
    owned = call.owned
    found = await _find(owned, call.named("response_id"))
    turn = await owned.turn(found.turn.id)
    await turn.cancel()
    return _shown(await _encoded(owned, await turn.read()))


async def delete(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Delete the id of a response; its messages stay in the conversation."""
    found = await _find(call.owned, call.named("response_id"))
    await call.run(commands.forget(found.turn.id, owner=call.owner))
    return ApiResponse(value=DeletedResponse(id=response_name(found.turn.id)))


async def list_input(call: ApiRequest[NoInput, ItemListQuery]) -> ApiResponse:
    """List the input of a response. Before its turn starts, the input has no id and is not listed."""
    owned = call.owned
    encoder = (await _find(owned, call.named("response_id"))).encoder
    recorded = encoder.request.items
    before = (
        ()
        if recorded is None
        else await recorded_in(owned, await owned.run(commands.turn(recorded, owner=owned.owner)))
    )
    items = items_of([*before, *([] if encoder.input is None else [encoder.input])])
    return ApiResponse(value=pick([item.value for item in items], call.query))


async def not_offered(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Respond 404, which clients do not retry."""
    what = call.request.url.path
    hint = "The usage of a turn is in its response."
    raise Refused(404, "not_offered", f"{what} is not supported by this server", hint=hint)


# --- the request ------------------------------------------------------------------------------------------------------


async def _input_messages(owned: OwnerSessions, asked: NewResponse) -> list[NewMessage]:
    messages = await input_messages(owned, asked.input)
    if not messages and asked.conversation is None and asked.previous_response_id is None:
        raise BadParameter(
            "input", "there is no input", hint="Send `input`, or name a response or conversation to continue."
        )
    return messages


async def input_messages(owned: OwnerSessions, given: str | list[Object] | None) -> list[NewMessage]:
    """The input as messages: text, or items with their references resolved and their files stored."""
    if isinstance(given, str):
        if not given.strip():
            raise BadParameter("input", "the input is empty", hint="Send text or items in `input`.")
        return messages_from(without_files([{"role": "user", "content": given}]), param="input")
    items = await resolve_references(owned, given or [], param="input")
    stored = await store_files(owned, items, param="input", strict=True)
    return messages_from(stored, param="input", strict=True)


def _request(call: ApiRequest[NewResponse, NoInput], agent: str) -> StoredRequest:
    """All parameters besides the input, as they are stored with it.

    Raises:
        BadParameter: A parameter is not supported by the server or the agent.
    """
    asked = call.body
    for name in _REFUSED:
        if getattr(asked, name):
            raise unsupported(name, "no agent of this server supports it")
    if asked.service_tier not in (None, "auto", "default"):
        raise unsupported("service_tier", "there is only one tier")
    if asked.background and asked.store is False:
        raise BadParameter("background", "a background response is always stored", hint="Leave out store=false.")
    request = StoredRequest(
        instructions=asked.instructions or None,
        tools=client_tools(asked.tools or []),
        tool_choice=choice_of(asked.tool_choice, asked.tools or ()),
        parallel_tool_calls=None if asked.parallel_tool_calls else asked.parallel_tool_calls,
        temperature=asked.temperature,
        top_p=asked.top_p,
        max_output_tokens=asked.max_output_tokens,
        reasoning=_changed_fields(asked.reasoning, {}),
        text=_changed_fields(asked.text, {"format": {"type": "text"}}),
        background=asked.background is True,
        conversation=asked.conversation is not None,
        store=asked.store is not False,
        previous_response_id=asked.previous_response_id,
        metadata=check_metadata(asked.metadata) or None,
        truncation=asked.truncation,
        user=asked.user,
        safety_identifier=asked.safety_identifier,
        prompt_cache_key=asked.prompt_cache_key,
    )
    check_directions(call.service, agent, request)
    return request


def _changed_fields(value: Object | None, usual: Object) -> Object | None:
    """The fields of an object that differ from their defaults; None if there are none."""
    differing = {name: one for name, one in (value or {}).items() if one is not None and usual.get(name) != one}
    return differing or None


def _conversation(asked: NewResponse) -> SessionId | None:
    if asked.conversation is None:
        return None
    if asked.previous_response_id is not None:
        raise BadParameter(
            "conversation", "conversation and previous_response_id exclude each other", hint="Name one of them."
        )
    return session_named(asked.conversation if isinstance(asked.conversation, str) else asked.conversation.id)


async def previous_turn(owned: OwnerSessions, name: str | None) -> TurnInfo | None:
    """The turn of a previous response; None without a name.

    Raises:
        BadParameter: There is no such response.
    """
    if name is None:
        return None
    try:
        return (await _find(owned, name)).turn
    except NotFound as error:
        raise BadParameter(
            "previous_response_id",
            f"previous response {name[:64]!r} does not exist",
            hint="It may have been deleted, or created with store=false.",
            code="previous_response_not_found",
        ) from error


# --- the response -----------------------------------------------------------------------------------------------------


async def _find(owned: OwnerSessions, name: str) -> Found:
    """The response with this id.

    Raises:
        NotFound: There is none, it was deleted, or it was created with store=false.
    """
    found = await _encoded(owned, await responding(owned, turn_named(name)))
    if not found.encoder.request.store:
        raise response_not_found(found.turn.id)
    return found


async def _encoded(owned: OwnerSessions, turn: TurnInfo) -> Found:
    encoder, _ = encode_turn(turn, await events_of(owned, turn))
    return Found(turn, encoder)


def _shown(found: Found) -> ApiResponse:
    return ApiResponse(value=found.encoder.response(), headers={SESSION_HEADER: found.turn.session})


def _check_resumable(found: Found, after: int) -> None:
    """Raise unless event `after` exists and the events after it can still be sent with the same numbers."""
    if found.encoder.folded:
        raise BadParameter(
            "starting_after",
            f"the stream of {response_name(found.turn.id)} has expired",
            hint="Retrieve the whole response without streaming: its content is complete.",
            code="stream_expired",
        )
    if after >= found.encoder.next_number:
        raise BadParameter(
            "starting_after",
            f"{response_name(found.turn.id)} has no event {after}",
            hint="Pass the sequence_number of the last event that you received.",
        )


def delete_soon(owned: OwnerSessions, turn: Turn) -> None:
    """Delete the session of a request with store=false, in the background, when its turn has ended."""
    owned.start_background(_delete_when_over(owned, turn), f"delete {turn.session}")


async def _delete_when_over(owned: OwnerSessions, turn: Turn) -> None:
    with suppress(NotFound):
        await turn.outcome()
        await owned.run(commands.delete(turn.session, owner=owned.owner))


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="POST",
        path="/v1/responses",
        name="create_response",
        summary="Create a response: wait for it, stream it, or run it in the background.",
        run=create,
        body=NewResponse,
        query=NoInput,
        answer=dict,
        frames=(ResponseFrame,),
        request_id=True,
        files=True,
    ),
    Operation(
        method="POST",
        path="/v1/responses/input_tokens",
        name="count_input_tokens",
        summary="Not supported.",
        run=not_offered,
        body=NoInput,
        query=NoInput,
    ),
    Operation(
        method="GET",
        path="/v1/responses/{response_id}",
        name="retrieve_response",
        summary="Get a response as it is now, or its events after a number.",
        run=retrieve,
        body=NoInput,
        query=RetrieveQuery,
        answer=dict,
        frames=(ResponseFrame,),
    ),
    Operation(
        method="DELETE",
        path="/v1/responses/{response_id}",
        name="delete_response",
        summary="Delete the id of a response. The session keeps its messages.",
        run=delete,
        body=NoInput,
        query=NoInput,
        answer=DeletedResponse,
    ),
    Operation(
        method="POST",
        path="/v1/responses/{response_id}/cancel",
        name="cancel_response",
        summary="Cancel a response, in whichever process it runs.",
        run=cancel,
        body=NoInput,
        query=NoInput,
        answer=dict,
    ),
    Operation(
        method="GET",
        path="/v1/responses/{response_id}/input_items",
        name="list_input_items",
        summary="List the input items of a response.",
        run=list_input,
        body=NoInput,
        query=ItemListQuery,
        answer=ItemPage,
    ),
)
