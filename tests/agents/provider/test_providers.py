"""Rules that hold for the agents of all providers."""

import asyncio
from typing import Any, NamedTuple

import msgspec
import pytest

from backstay.agents import Agent
from backstay.agents.directions import ClientTool, Directions
from backstay.agents.provider.anthropic.anthropic_agent import AnthropicAgent
from backstay.agents.provider.gemini.gemini_agent import GeminiAgent
from backstay.agents.tools import tool
from backstay.errors import AgentFailed, BackstayError, ConfigError, ContextOverflow, InputRefused, KeyRefused
from backstay.model.content import Body, Custom, Json, Text, Thought, ToolCall, ToolResult, Usage
from tests.agents.fake_turn import LooseTurn, output_of, text_in
from tests.agents.provider import fake_anthropic, fake_gemini
from tests.agents.provider.dialects import ANTHROPIC, DIALECTS, GEMINI, OPENAI, Dialect, Wish
from tests.agents.provider.fake_provider import FakeProvider, Play, breaks_after, hangs_up, refuses, says

KEY = "sk-the-secret-of-the-house-0123456789"
NATIVE = [ANTHROPIC, GEMINI]
each = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
each_native = pytest.mark.parametrize("dialect", NATIVE, ids=lambda dialect: dialect.name)


class Heard(NamedTuple):
    bodies: list[Body]
    error: BackstayError | None
    provider: FakeProvider
    waits: list[float]

    @property
    def sent(self) -> list[Json]:
        return [request.body for request in self.provider.requests]


def ask(dialect: Dialect, *plays: Play, turn: LooseTurn | None = None, **settings: Any) -> Heard:
    """Run one turn to its end, and check every request that the provider got."""

    async def story() -> Heard:
        bodies: list[Body] = []
        waits: list[float] = []
        error: BackstayError | None = None

        async def pause(seconds: float) -> None:
            waits.append(seconds)

        async with FakeProvider(*plays) as provider:
            usual: dict[str, Any] = {"api_key": KEY, "pause": pause, "chance": lambda: 0.5}
            agent = dialect.agent(provider, **(usual | settings))
            try:
                await output_of(agent, turn or LooseTurn(), bodies.append)
            except BackstayError as raised:
                error = raised
            finally:
                await agent.aclose()
        for request in provider.requests:
            dialect.check(request)
        return Heard(bodies, error, provider, waits)

    return asyncio.run(story())


def add(x: int, y: int = 1) -> int:
    """Add two numbers."""
    return x + y


def directed(said: str, **directions: Any) -> LooseTurn:
    data = msgspec.to_builtins(Directions(**directions))
    return LooseTurn([Text(said), Custom("request", data)])


@each
def test_an_agent_of_each_provider_streams_words_and_hides_its_key(dialect: Dialect) -> None:
    told = ask(dialect, dialect.answers("Hello."))
    name, prefix = dialect.key_header

    assert text_in(told.bodies) == "Hello."
    assert told.provider.requests[0].headers[name] == prefix + KEY

    async def made() -> None:
        async with FakeProvider() as provider:
            agent = dialect.agent(provider, api_key=KEY)
            assert isinstance(agent, Agent)
            assert KEY not in repr(agent)

    asyncio.run(made())


@each
def test_tools_run_through_the_turn_and_their_results_reach_the_model(dialect: Dialect) -> None:
    turn = LooseTurn("2 and 3?")
    wishes = [Wish("call_0", "add", {"x": 2, "y": 3}), Wish("call_1", "add", {"x": "two"}), Wish("call_2", "sub", {})]

    told = ask(dialect, dialect.calls("Let me see.", *wishes), dialect.answers("5"), turn=turn, tools=[add])

    assert told.error is None
    assert turn.calls == [("add", {"x": 2, "y": 3})]
    assert text_in(told.bodies) == "Let me see.5"
    assert [body.error for body in told.bodies if isinstance(body, ToolResult)] == [True, True]
    assert len(told.sent) == 2


@each
def test_thoughts_are_yielded_as_thoughts(dialect: Dialect) -> None:
    told = ask(dialect, dialect.calls("Well.", Wish("c", "add", {"x": 1})), dialect.answers("2"), tools=[add])

    assert next(body.text for body in told.bodies if isinstance(body, Thought)) == "hm"


@each
@pytest.mark.parametrize("fault", [refuses(429), refuses(529), hangs_up], ids=["429", "529", "hangs up"])
def test_a_fault_before_the_first_output_is_retried(dialect: Dialect, fault: Play) -> None:
    early = breaks_after(dialect.begins())

    told = ask(dialect, fault, early, dialect.answers("Hello."))

    assert (text_in(told.bodies), told.error, len(told.waits)) == ("Hello.", None, 2)


@each
def test_a_fault_after_the_first_output_is_not_retried(dialect: Dialect) -> None:
    told = ask(dialect, breaks_after(*dialect.cut_off("Hel")), dialect.answers("Hello."))

    assert text_in(told.bodies) == "Hel"
    assert isinstance(told.error, AgentFailed)
    assert "in the middle of the answer" in str(told.error)
    assert len(told.sent) == 1


@each
def test_a_client_runs_its_own_tools(dialect: Dialect) -> None:
    theirs = ClientTool(name="open", description="Open.", parameters={"type": "object", "properties": {"a": {}}})
    turn = directed("open it", tools=(theirs,), tool_choice="required", temperature=0.5)

    told = ask(dialect, dialect.calls("So.", Wish("call_7", "open", {"a": 1})), turn=turn)

    assert ToolCall("call_7", "open", {"a": 1}, client=True) in told.bodies


@each
def test_steering_reaches_the_model_between_two_steps(dialect: Dialect) -> None:
    turn = LooseTurn("go", steering=["faster"])

    told = ask(dialect, dialect.calls("So.", Wish("a", "add", {"x": 1})), dialect.answers("ok"), turn=turn, tools=[add])

    assert "faster" in repr(told.sent[1])


@each
def test_a_tool_that_fails_or_may_have_run_is_an_error_for_the_model(dialect: Dialect) -> None:
    @tool
    def pay(amount: int) -> str:
        """Pay."""
        raise ValueError("no money")

    turn = LooseTurn("go", interrupted=["add"])
    wishes = [Wish("a", "pay", {"amount": 1}), Wish("b", "add", {"x": 1})]

    told = ask(dialect, dialect.calls("So.", *wishes), dialect.answers("ok"), turn=turn, tools=[add, pay])

    assert told.error is None
    assert "pay failed: no money" in repr(told.sent[1])
    assert "add was interrupted" in repr(told.sent[1])


@each_native
@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"error": {"type": "invalid_request_error", "message": "bad"}}, InputRefused),
        (400, {"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}, ContextOverflow),
        (400, {"error": {"message": "The input token count (9) exceeds the maximum number"}}, ContextOverflow),
        (400, {"error": {"code": 400, "message": "API key not valid. Please pass a valid API key."}}, KeyRefused),
        (401, {"error": {"type": "authentication_error", "message": "invalid x-api-key"}}, KeyRefused),
        (400, {"error": {"message": "Your credit balance is too low"}}, AgentFailed),
    ],
)
def test_a_refusal_has_the_class_of_its_cause(
    dialect: Dialect, status: int, body: Json, kind: type[BackstayError]
) -> None:
    told = ask(dialect, refuses(status, body))

    assert type(told.error) is kind
    assert KEY not in str(told.error)


@each_native
def test_the_wait_that_a_provider_asks_for_is_kept(dialect: Dialect) -> None:
    named = refuses(429, {"error": {"code": 429, "message": "Quota exceeded. Please retry in 7.5s."}})

    told = ask(dialect, refuses(429, "", retry_after="3"), named, dialect.answers("Hello."))

    assert [wait >= least for wait, least in zip(told.waits, (3.0, 7.5), strict=True)] == [True, True]


@each_native
@pytest.mark.parametrize("settings", [{"step_limit": 0}, {"base_url": "ftp://x"}, {"api_key": "a b"}])
def test_settings_that_cannot_work_are_refused(dialect: Dialect, settings: Any) -> None:
    kind = AnthropicAgent if dialect is ANTHROPIC else GeminiAgent

    with pytest.raises(ConfigError):
        kind("tiny", **settings)


@pytest.mark.parametrize(
    ("dialect", "fields"),
    [
        (OPENAI, {"stop": ["."], "seed": 7, "presence_penalty": 0.5, "frequency_penalty": -0.5}),
        (ANTHROPIC, {"stop_sequences": ["."]}),
        (GEMINI, {"stopSequences": ["."], "seed": 7, "presencePenalty": 0.5, "frequencyPenalty": -0.5}),
    ],
    ids=lambda value: value.name if isinstance(value, Dialect) else "",
)
def test_the_directions_that_an_agent_takes_reach_its_provider(dialect: Dialect, fields: dict[str, Json]) -> None:
    given: dict[str, Any] = {"stop": (".",), "seed": 7, "presence_penalty": 0.5, "frequency_penalty": -0.5}
    taken = {name: value for name, value in given.items() if name in dialect.takes}

    [sent] = ask(dialect, dialect.answers("ok"), turn=directed("x", **taken)).sent

    assert len(taken) == len(fields)
    assert fields.items() <= (sent | sent.get("generationConfig", {})).items()


# --- Anthropic --------------------------------------------------------------------------------------------------------


def test_anthropic_counts_cached_tokens_as_a_part_of_the_input() -> None:
    begin = fake_anthropic.start(cache_read_input_tokens=100, cache_creation_input_tokens=20)
    play = says(begin, fake_anthropic.words(0, "Hi"), fake_anthropic.end(output_tokens=7))

    told = ask(ANTHROPIC, play)

    assert told.bodies[-1] == Usage(input_tokens=123, output_tokens=7, cached_tokens=100, model=fake_anthropic.MODEL)


def test_anthropic_gets_marks_for_its_cache_that_do_not_move() -> None:
    told = ask(ANTHROPIC, ANTHROPIC.answers("Hi"), system="Be kind.", thinking=None, max_tokens=99)

    assert told.sent == [
        {
            "model": "tiny",
            "stream": True,
            "max_tokens": 99,
            "system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
            "cache_control": {"type": "ephemeral"},
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
        }
    ]


def test_anthropic_gets_its_thoughts_back_with_their_signatures() -> None:
    told = ask(ANTHROPIC, ANTHROPIC.calls("So.", Wish("c", "add", {"x": 1})), ANTHROPIC.answers("2"), tools=[add])

    said = told.sent[1]["messages"][1]["content"]
    assert [part["type"] for part in said] == ["thinking", "redacted_thinking", "thinking", "text", "tool_use"]
    assert said[2] == {"type": "thinking", "thinking": "so", "signature": fake_anthropic.sign("so")}


@pytest.mark.parametrize(("reason", "cut"), [("max_tokens", "length"), ("refusal", "content_filter")])
def test_an_answer_that_anthropic_cuts_says_so(reason: str, cut: str) -> None:
    told = ask(ANTHROPIC, says(fake_anthropic.start(), fake_anthropic.words(0, "Once"), fake_anthropic.end(reason)))

    assert told.bodies[-1] == Custom("answer_cut", {"reason": cut})


def test_an_overloaded_error_in_anthropics_stream_is_retried() -> None:
    overloaded = fake_anthropic.event("error", error={"type": "overloaded_error", "message": "Overloaded"})

    told = ask(ANTHROPIC, says(fake_anthropic.start(), overloaded), ANTHROPIC.answers("Hello."))

    assert text_in(told.bodies) == "Hello."


def test_anthropic_gets_the_directions_of_a_client() -> None:
    theirs = (ClientTool(name="open"),)
    turn = directed("x", tools=theirs, tool_choice="auto", parallel_tool_calls=False, top_p=0.5, max_output_tokens=50)

    [sent] = ask(ANTHROPIC, ANTHROPIC.answers("ok"), turn=turn, thinking=1000).sent

    assert sent["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert (sent["top_p"], sent["max_tokens"]) == (0.5, 1050)
    assert sent["tools"] == [{"name": "open", "input_schema": {"type": "object", "properties": {}}}]


# --- Gemini -----------------------------------------------------------------------------------------------------------


def test_gemini_counts_thoughts_as_output_and_cached_tokens() -> None:
    last = fake_gemini.end(
        promptTokenCount=100, cachedContentTokenCount=80, candidatesTokenCount=5, thoughtsTokenCount=4
    )

    told = ask(GEMINI, says(fake_gemini.words("Hi"), last))

    assert told.bodies[-1] == Usage(
        input_tokens=100, output_tokens=9, cached_tokens=80, model=fake_gemini.MODEL, reasoning_tokens=4
    )


def test_gemini_gets_tools_and_directions_in_its_own_form() -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
    turn = directed("x", tool_choice={"type": "function", "name": "add"}, max_output_tokens=50, text={"format": form})

    [sent] = ask(GEMINI, GEMINI.answers("ok"), turn=turn, system="Be kind.", tools=[add], thoughts=False).sent

    assert sent["systemInstruction"] == {"parts": [{"text": "Be kind."}]}
    assert sent["generationConfig"] == {
        "maxOutputTokens": 50,
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object"},
    }
    assert sent["toolConfig"] == {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["add"]}}
    assert sent["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"]["required"] == ["x"]


def test_a_prompt_that_gemini_blocks_is_a_refused_input() -> None:
    told = ask(GEMINI, says(fake_gemini.event({"promptFeedback": {"blockReason": "SAFETY"}})))

    assert isinstance(told.error, InputRefused)
    assert "SAFETY" in str(told.error)


@pytest.mark.parametrize(("reason", "cut"), [("MAX_TOKENS", "length"), ("SAFETY", "content_filter")])
def test_an_answer_that_gemini_cuts_says_so(reason: str, cut: str) -> None:
    told = ask(GEMINI, says(fake_gemini.words("Once"), fake_gemini.end(reason)))

    assert told.bodies[-1] == Custom("answer_cut", {"reason": cut})


def test_a_malformed_call_of_gemini_fails_the_turn() -> None:
    told = ask(GEMINI, says(fake_gemini.end("MALFORMED_FUNCTION_CALL")))

    assert isinstance(told.error, AgentFailed)
