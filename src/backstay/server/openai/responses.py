"""Responses: turns under the names of this wire. Created, followed, resumed, cancelled, deleted."""

from contextlib import nullcontext, suppress
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from backstay.errors import NotFound
from backstay.model.content import Json
from backstay.model.ids import SessionId
from backstay.model.message import NewMessage
from backstay.model.turn import Turn
from backstay.runtime.owned import Owned
from backstay.runtime.turn import TurnHandle
from backstay.server.call import Answer, Call, Nothing
from backstay.server.openai.accepting import Wanted, accept
from backstay.server.openai.asking import agent_named, check_directions, choice_of, client_tools, words_of
from backstay.server.openai.conversations import check_metadata
from backstay.server.openai.faults import BadParameter, unsupported
from backstay.server.openai.items import items_of
from backstay.server.openai.names import response_name, session_named, turn_named
from backstay.server.openai.narration import Narrator, narrate
from backstay.server.openai.paging import ListQuery, Page, pick
from backstay.server.openai.reading import messages_from
from backstay.server.openai.request import Request
from backstay.server.openai.stories import no_response, recorded_in, responding, story_of
from backstay.server.openai.telling import SESSION_HEADER, ResponseTeller, TurnStream, until_over
from backstay.server.operation import AnyOperation, Operation
from backstay.server.problems import Refused
from backstay.store.port import Store

SequenceNumber = Annotated[int, Meta(ge=-1, le=1 << 53)]
# Any: an item, a tool and a format are whatever JSON their types say.
Object = dict[str, Any]


class ConversationParam(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A conversation, by its name."""

    id: str


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing is obfuscated, whatever is asked for."""

    include_obfuscation: bool | None = None
    include_usage: bool | None = None


class NewResponse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What shall be answered, by whom, and how. What is not named here is refused as unknown."""

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
    # These change nothing of the answer, and are told again with it or left to the provider.
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: Object | None = None
    include: list[str] | None = None
    stream_options: StreamOptions | None = None
    service_tier: str | None = None
    # These are understood and cannot be had here; they are refused unless they ask for nothing.
    max_tool_calls: int | None = None
    top_logprobs: int | None = None
    prompt: Object | None = None
    context_management: list[Object] | None = None
    moderation: Json = None


_REFUSED = ("max_tool_calls", "top_logprobs", "prompt", "context_management", "moderation")


class RetrieveQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether to follow it, and from which number on."""

    stream: bool = False
    starting_after: SequenceNumber | None = None
    include_obfuscation: bool | None = None
    include: str | None = msgspec.field(default=None, name="include[]")


class DeletedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of it."""

    id: str
    object: str = "response"
    deleted: bool = True


class Found(NamedTuple):
    """A response: the turn that it is, and all that is told of it by now."""

    turn: Turn
    narrator: Narrator


async def create(call: Call[NewResponse, Nothing]) -> Answer:
    """Accept something to be answered, and answer with it as far as was asked for."""
    asked, owned = call.body, call.owned
    agent = agent_named(call.service, asked.model)
    wanted = Wanted(agent, words_of(_said(asked)), _request(call, agent), call.request_id)
    conversation, previous = _conversation(asked), await _previous(owned, asked)
    fleeting = asked.store is False and conversation is None
    at_once = asked.background is True and not asked.stream
    with nullcontext() if at_once else call.service.streams.admitted(call.caller):
        turn = await accept(owned, wanted, conversation=conversation, previous=previous, fleeting=fleeting)
        seen = await turn.read()
    forget = partial(_delete_soon, owned, turn) if fleeting else None
    if asked.stream:
        return Answer(app=TurnStream(call.service, call.caller, seen, ResponseTeller(seen), afterwards=forget))
    try:
        return await _answered(call, turn)
    finally:
        if forget is not None:
            forget()


async def _answered(call: Call[NewResponse, Nothing], turn: TurnHandle) -> Answer:
    """The response once it has ended, or at once if it goes on in the background."""
    if not call.body.background:
        await until_over(call, turn)
    return _shown(await _narrated(call.owned, await turn.read()))


async def retrieve(call: Call[Nothing, RetrieveQuery]) -> Answer:
    """A response as it is now, or its story from a number on."""
    found = await _find(call.owned, call.named("response"))
    after = call.query.starting_after
    if not call.query.stream:
        if after is not None:
            raise BadParameter("starting_after", "starting_after means nothing here", hint="Ask with stream=true.")
        return _shown(found)
    if after is not None:
        _check_can_go_on(found, after)
    if call.request.method == "HEAD":
        return _shown(found)  # whoever wants only the head does not listen to the rest
    call.service.streams.admit(call.caller)
    teller = ResponseTeller(found.turn, -1 if after is None else after)
    return Answer(app=TurnStream(call.service, call.caller, found.turn, teller))


async def cancel(call: Call[Nothing, Nothing]) -> Answer:
    """Stop it wherever it runs; answered once it has ended."""
    owned = call.owned
    found = await _find(owned, call.named("response"))
    turn = await owned.turn(found.turn.id)
    await turn.cancel()
    return _shown(await _narrated(owned, await turn.read()))


async def delete(call: Call[Nothing, Nothing]) -> Answer:
    """Stop showing it by its name; what was said stays in its conversation."""
    found = await _find(call.owned, call.named("response"))
    await call.owned.write(Store.forget, found.turn.id)
    return Answer(value=DeletedResponse(id=response_name(found.turn.id)))


async def list_input(call: Call[Nothing, ListQuery]) -> Answer:
    """What it was given to answer. While it waits, its input has no name yet, and is not shown."""
    owned = call.owned
    narrator = (await _find(owned, call.named("response"))).narrator
    recorded = narrator.request.items
    before = () if recorded is None else await recorded_in(owned, await owned.read(Store.turn, recorded))
    items = items_of([*before, *([] if narrator.input is None else [narrator.input])])
    return Answer(value=pick([item.value for item in items], call.query))


async def not_offered(call: Call[Nothing, Nothing]) -> Answer:
    """Say so, in a way that no client repeats."""
    what = call.request.url.path
    hint = "Compact a session with POST /api/sessions/{id}/compact; what a turn used is in its response."
    raise Refused(404, "not_offered", f"{what} is not offered by this server", hint=hint)


# --- what was asked for -----------------------------------------------------------------------------------------------


def _said(asked: NewResponse) -> list[NewMessage]:
    if isinstance(asked.input, str):
        if not asked.input.strip():
            raise BadParameter("input", "the input is empty", hint="Say something.")
        return messages_from([{"role": "user", "content": asked.input}], param="input")
    said = messages_from(asked.input or [], param="input", strict=True)
    if not said and asked.conversation is None and asked.previous_response_id is None:
        raise BadParameter("input", "there is no input", hint="Send input, or name what to go on with.")
    return said


def _request(call: Call[NewResponse, Nothing], agent: str) -> Request:
    """All that is asked for beside the words, as it is stored with them; refused if it would not be followed."""
    asked = call.body
    for name in _REFUSED:
        if getattr(asked, name):
            raise unsupported(name, "no agent here can follow it")
    if asked.service_tier not in (None, "auto", "default"):
        raise unsupported("service_tier", "there is only one")
    if asked.background and asked.store is False:
        raise BadParameter("background", "what runs in the background is stored", hint="Leave out store=false.")
    request = Request(
        instructions=asked.instructions or None,
        tools=client_tools(asked.tools or []),
        tool_choice=choice_of(asked.tool_choice, asked.tools or ()),
        parallel_tool_calls=None if asked.parallel_tool_calls else asked.parallel_tool_calls,
        temperature=asked.temperature,
        top_p=asked.top_p,
        max_output_tokens=asked.max_output_tokens,
        reasoning=_meaning(asked.reasoning, {}),
        text=_meaning(asked.text, {"format": {"type": "text"}}),
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


def _meaning(value: Object | None, usual: Object) -> Object | None:
    """What an object asks for beyond what is usual; None if nothing."""
    said = {name: one for name, one in (value or {}).items() if one is not None and usual.get(name) != one}
    return said or None


def _conversation(asked: NewResponse) -> SessionId | None:
    if asked.conversation is None:
        return None
    if asked.previous_response_id is not None:
        raise BadParameter(
            "conversation", "conversation and previous_response_id exclude each other", hint="Name one of them."
        )
    return session_named(asked.conversation if isinstance(asked.conversation, str) else asked.conversation.id)


async def _previous(owned: Owned, asked: NewResponse) -> Turn | None:
    return None if asked.previous_response_id is None else (await _find(owned, asked.previous_response_id)).turn


# --- what there is ----------------------------------------------------------------------------------------------------


async def _find(owned: Owned, name: str) -> Found:
    """The response of this name; `NotFound` if it was not to be stored."""
    found = await _narrated(owned, await responding(owned, turn_named(name)))
    if not found.narrator.request.store:
        raise no_response(found.turn.id)
    return found


async def _narrated(owned: Owned, turn: Turn) -> Found:
    narrator, _ = narrate(turn, await story_of(owned, turn))
    return Found(turn, narrator)


def _shown(found: Found) -> Answer:
    return Answer(value=found.narrator.response(), headers={SESSION_HEADER: found.turn.session})


def _check_can_go_on(found: Found, after: int) -> None:
    """Raise unless this number was told, and what follows it can still be told under the same numbers."""
    if found.narrator.folded:
        raise BadParameter(
            "starting_after",
            f"the stream of {response_name(found.turn.id)} has expired",
            hint="Retrieve it as a whole: nothing of it is lost but the pieces it was said in.",
            code="stream_expired",
        )
    if after >= found.narrator.next_number:
        raise BadParameter(
            "starting_after",
            f"{response_name(found.turn.id)} has no event {after}",
            hint="Pass the sequence_number of the last event that you received.",
        )


def _delete_soon(owned: Owned, turn: TurnHandle) -> None:
    """Delete the session of a response that was not to be stored, once it has ended."""
    owned.send_off(_delete_when_over(owned, turn), f"delete {turn.session}")


async def _delete_when_over(owned: Owned, turn: TurnHandle) -> None:
    with suppress(NotFound):
        await turn.outcome()
        await owned.write(Store.delete, turn.session)


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="POST",
        path="/v1/responses",
        name="create_response",
        summary="Have something answered: at once, as a stream, or in the background.",
        run=create,
        body=NewResponse,
        query=Nothing,
        answer=dict,
        request_id=True,
    ),
    Operation(
        method="POST",
        path="/v1/responses/compact",
        name="compact_response",
        summary="Not offered.",
        run=not_offered,
        body=Nothing,
        query=Nothing,
    ),
    Operation(
        method="POST",
        path="/v1/responses/input_tokens",
        name="count_input_tokens",
        summary="Not offered.",
        run=not_offered,
        body=Nothing,
        query=Nothing,
    ),
    Operation(
        method="GET",
        path="/v1/responses/{response}",
        name="retrieve_response",
        summary="A response as it is now, or its events from a number on.",
        run=retrieve,
        body=Nothing,
        query=RetrieveQuery,
        answer=dict,
    ),
    Operation(
        method="DELETE",
        path="/v1/responses/{response}",
        name="delete_response",
        summary="Stop showing a response by its name.",
        run=delete,
        body=Nothing,
        query=Nothing,
        answer=DeletedResponse,
    ),
    Operation(
        method="POST",
        path="/v1/responses/{response}/cancel",
        name="cancel_response",
        summary="Stop a response wherever it runs.",
        run=cancel,
        body=Nothing,
        query=Nothing,
        answer=dict,
    ),
    Operation(
        method="GET",
        path="/v1/responses/{response}/input_items",
        name="list_input_items",
        summary="What a response was given to answer.",
        run=list_input,
        body=Nothing,
        query=ListQuery,
        answer=Page,
    ),
)
