"""Chat Completions: a turn for clients without sessions; a header names the session to continue.

Without `X-Session-Id`, the request has the whole history. It goes into a new session, whose id is in the response. With
the header, the session has the history, and only the messages after the last answer are new.
"""

from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from backstay.model.ids import SessionId, check_session_id
from backstay.model.turn import TurnInfo
from backstay.runtime.turn_handle import Turn
from backstay.server.http.api_request import ApiRequest, ApiResponse, NoInput
from backstay.server.http.operation import AnyOperation, Operation
from backstay.server.http.problems import Refused
from backstay.server.openai.conversation_routes import check_metadata
from backstay.server.openai.encoding.chat_completion import ChatEncoder, answer_of, completion_of
from backstay.server.openai.encoding.items import Value
from backstay.server.openai.encoding.response_stream import SESSION_HEADER, TurnStream, encode, until_over
from backstay.server.openai.encoding.turn_events import events_of
from backstay.server.openai.input_items.item_files import store_files, without_files
from backstay.server.openai.input_items.item_parser import messages_from
from backstay.server.openai.openai_errors import BadParameter, unsupported
from backstay.server.openai.openai_ids import session_named
from backstay.server.openai.parameters import agent_named, check_directions, choice_of, client_tools, turn_input_of
from backstay.server.openai.response_routes import StreamOptions, delete_soon
from backstay.server.openai.session_routing import RequestedResponse, accept
from backstay.server.openai.stored_request import StoredRequest

# Any: a message, a tool and a format are JSON objects whose type field defines their content.
Object = dict[str, Any]


class CompletionFrame(msgspec.Struct, frozen=True, kw_only=True):
    """One frame of a streamed completion: a chunk of OpenAI's Chat Completions API; at the end the word `[DONE]`."""

    data: dict[str, Any] | Literal["[DONE]"]  # Any: a chunk is a JSON object of another API


class NewCompletion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The messages, the agent (`model`) and the parameters of a completion. Unknown parameters are rejected."""

    messages: Annotated[list[Object], Meta(min_length=1)]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    tools: list[Object] | None = None
    tool_choice: str | Object | None = None
    parallel_tool_calls: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    reasoning_effort: str | None = None
    response_format: Object | None = None
    verbosity: str | None = None
    # These do not change the answer.
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    service_tier: str | None = None
    # These are known but not supported. They are rejected unless they have their default value.
    n: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    logit_bias: Object | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    modalities: list[str] | None = None
    audio: Object | None = None
    prediction: Object | None = None
    functions: list[Object] | None = None
    function_call: str | Object | None = None
    web_search_options: Object | None = None


_USUAL: dict[str, object] = {"n": 1, "modalities": ["text"], "service_tier": "auto"}
_REFUSED = (
    "n",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "modalities",
    "audio",
    "prediction",
    "functions",
    "function_call",
    "web_search_options",
)


async def create(call: ApiRequest[NewCompletion, NoInput]) -> ApiResponse:
    """Answer the messages, with one response or as a stream."""
    asked, owned = call.body, call.owned
    agent = agent_named(call.service, asked.model)
    session = _session(call)
    temporary = asked.store is False and session is None
    instructions, items = _new_items(asked, lasting=session is not None)
    request = _request(call, agent, instructions)
    messages = messages_from(
        await store_files(owned, items, param="messages", strict=True), param="messages", strict=True
    )
    wanted = RequestedResponse(agent, turn_input_of(messages), request, call.request_id)
    with call.service.streams.admitted(call.caller):
        turn = await accept(owned, wanted, conversation=session, temporary=temporary)
        seen = await turn.read()
    forget = partial(delete_soon, owned, turn) if temporary else None
    if asked.stream:
        usage = asked.stream_options is not None and asked.stream_options.include_usage is True
        encoder = ChatEncoder(seen, usage=usage)
        return ApiResponse(app=TurnStream(call.service, call.caller, seen, encoder, afterwards=forget))
    try:
        return await _answered(call, turn, seen)
    finally:
        if forget is not None:
            forget()


async def _answered(call: ApiRequest[NewCompletion, NoInput], turn: Turn, seen: TurnInfo) -> ApiResponse:
    """The completion when the turn has ended."""
    await until_over(call, turn)
    answer = answer_of(await events_of(call.owned, seen), await turn.read())
    if answer.failure is not None:
        raise _failed(answer.failure)
    return ApiResponse(value=completion_of(seen, answer), headers={SESSION_HEADER: seen.session})


def _failed(why: str) -> Refused:
    """The error for a failed turn. Its header stops automatic retries, which would submit the input again."""
    hint = "A stored session keeps the messages. Send the request again."
    return Refused(502, "agent_failed", why, hint=hint, headers={"x-should-retry": "false"})


# --- the request ------------------------------------------------------------------------------------------------------


def _session(call: ApiRequest[NewCompletion, NoInput]) -> SessionId | None:
    name = call.request.headers.get(SESSION_HEADER)
    if name is None:
        return None
    return session_named(name) if name.startswith("conv_") else check_session_id(name)


def _new_items(asked: NewCompletion, *, lasting: bool) -> tuple[str | None, list[Value]]:
    """The instructions for this turn, and the items to submit.

    For a named session (`lasting`), only the messages after the last answer are new, and system messages become
    instructions.
    """
    numbered = [_items_of(message, f"messages[{index}]") for index, message in enumerate(asked.messages)]
    if not lasting:
        return None, [item for items in numbered for item in items]
    answers = [index for index, message in enumerate(asked.messages) if message.get("role") == "assistant"]
    news = [item for items in numbered[answers[-1] + 1 if answers else 0 :] for item in items]
    leading = [item for items in numbered for item in items if item.get("role") in ("system", "developer")]
    words = [part.text for part in messages_from(without_files(leading), param="messages", strict=True)]
    new = [item for item in news if item.get("role") not in ("system", "developer")]
    if not new:
        hint = "Add a message after the last answer."
        raise BadParameter("messages", "the messages contain nothing new", hint=hint)
    return "\n\n".join(words) or None, new


def _items_of(message: Object, param: str) -> list[Value]:
    """Convert a chat message to items."""
    role = message.get("role")
    if role == "tool":
        output = message.get("content")
        text = output if isinstance(output, str) else encode(output).decode()
        return [{"type": "function_call_output", "call_id": message.get("tool_call_id"), "output": text}]
    items: list[Value] = []
    if message.get("content") not in (None, "", []):
        items.append({"type": "message", "role": role, "content": _content(message["content"])})
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list) or not all(isinstance(one, dict) for one in calls):
        raise BadParameter(f"{param}.tool_calls", f"{param} has invalid tool calls", hint="Send a list of tool calls.")
    items += [_call(one) for one in calls]
    if not items:
        raise BadParameter(f"{param}.content", f"{param} has no content", hint="Send its content.")
    return items


def _content(content: Any) -> Any:  # Any: text or a list, which messages_from validates
    """Convert content to that of items. Files and other content is left for `store_files` and `messages_from`."""
    if not isinstance(content, list):
        return content
    return [
        {"type": "input_text", "text": part.get("text")}
        if isinstance(part, dict) and part.get("type") == "text"
        else part
        for part in content
    ]


def _call(call: Object) -> Value:
    function = call.get("function")
    named: Object = function if isinstance(function, dict) else {}
    return {
        "type": "function_call",
        "call_id": call.get("id"),
        "name": named.get("name"),
        "arguments": named.get("arguments"),
    }


def _request(call: ApiRequest[NewCompletion, NoInput], agent: str, instructions: str | None) -> StoredRequest:
    asked = call.body
    for name in _REFUSED:
        value = getattr(asked, name)
        if value and value != _USUAL.get(name):
            raise unsupported(name, "no agent of this server supports it")
    request = StoredRequest(
        instructions=instructions,
        tools=client_tools(asked.tools or [], nested=True),
        tool_choice=choice_of(_choice(asked.tool_choice), asked.tools or ()),
        parallel_tool_calls=None if asked.parallel_tool_calls else asked.parallel_tool_calls,
        temperature=asked.temperature,
        top_p=asked.top_p,
        max_output_tokens=asked.max_completion_tokens or asked.max_tokens,
        reasoning=None if asked.reasoning_effort is None else {"effort": asked.reasoning_effort},
        text=_text(asked),
        stop=_stop(asked.stop),
        seed=asked.seed,
        presence_penalty=asked.presence_penalty or None,
        frequency_penalty=asked.frequency_penalty or None,
        metadata=check_metadata(asked.metadata) or None,
        user=asked.user,
        safety_identifier=asked.safety_identifier,
        prompt_cache_key=asked.prompt_cache_key,
    )
    check_directions(call.service, agent, request)
    return request


def _stop(stop: str | list[str] | None) -> tuple[str, ...]:
    """The texts at which an answer ends; one may be sent without a list."""
    return (stop,) if isinstance(stop, str) else tuple(stop or ())


def _choice(choice: str | Object | None) -> str | Object | None:
    if isinstance(choice, dict) and isinstance(choice.get("function"), dict):
        return {"type": "function", **choice["function"]}
    return choice


def _text(asked: NewCompletion) -> Object | None:
    """The requested format, as the Responses API writes it."""
    wanted, text = asked.response_format, Object()
    if wanted is not None and wanted.get("type") == "json_schema" and isinstance(wanted.get("json_schema"), dict):
        text["format"] = {"type": "json_schema", **wanted["json_schema"]}
    elif wanted is not None and wanted != {"type": "text"}:
        text["format"] = wanted
    if asked.verbosity is not None:
        text["verbosity"] = asked.verbosity
    return text or None


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="POST",
        path="/v1/chat/completions",
        name="create_completion",
        summary="Answer messages in the session that a header names, or in a new one.",
        run=create,
        body=NewCompletion,
        query=NoInput,
        answer=dict,
        frames=(CompletionFrame,),
        request_id=True,
        files=True,
    ),
)
