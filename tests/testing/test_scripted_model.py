"""A scripted model answers agents, and the clients of providers, in the formats of three APIs."""

import json
import threading
from collections.abc import Callable

import httpx2
import pytest

from backstay import Completed, Failed, Text, Thought, ToolCall, Usage
from backstay.agents import Agent, AnthropicAgent, GeminiAgent, OpenAICompatible, ProviderBackoff
from backstay.errors import ConfigError
from backstay.model.content import Json
from backstay.testing import ModelCut, ModelHold, ModelRefusal, ModelRequest, ScriptedModel, run_turn
from tests.testing.sample_agents import pay

EAGER = ProviderBackoff(retries=1, base=0.0)
AGENTS: dict[str, Callable[[ScriptedModel], Agent]] = {
    "openai": lambda model: OpenAICompatible(model.openai_url, "tiny", "k", tools=[pay], backoff=EAGER),
    "anthropic": lambda model: AnthropicAgent("tiny", "k", base_url=model.anthropic_url, tools=[pay], backoff=EAGER),
    "gemini": lambda model: GeminiAgent("tiny", "k", base_url=model.gemini_url, tools=[pay], backoff=EAGER),
}
each_api = pytest.mark.parametrize("api", AGENTS)


def post(url: str, body: Json) -> httpx2.Response:
    return httpx2.post(url, json=body, trust_env=False, timeout=120.0)


@each_api
async def test_an_agent_calls_the_tools_that_the_script_asks_for(api: str) -> None:
    with ScriptedModel(
        [Thought("Hm. "), Text("I pay. "), ToolCall("call_1", "pay", {"amount": 5}), Usage(input_tokens=7)],
        ["It is ", "paid.", Usage(input_tokens=9, output_tokens=2)],
    ) as model:
        run = await run_turn(AGENTS[api](model), "pay 5")

        assert run.outcome == Completed()
        assert run.text == "I pay. It is paid."
        assert [(call.name, call.arguments) for call in run.tool_calls] == [("pay", {"amount": 5})]
        assert [call.effect for call in run.calls] == ["returned"]
        assert (run.info.usage.input_tokens, run.info.usage.output_tokens) == (16, 2)
        assert model.answers_left == 0
        assert "paid 5" in model.requests[1].raw.decode()
        assert "k" in {value.removeprefix("Bearer ") for value in model.requests[0].headers.values()}


@each_api
async def test_a_refusal_of_the_script_is_the_providers_error(api: str) -> None:
    with ScriptedModel(ModelRefusal(status=400, message="this input is flagged")) as model:
        run = await run_turn(AGENTS[api](model), "hello")

        assert isinstance(run.outcome, Failed)
        assert run.outcome.code == "input_refused"
        assert "this input is flagged" in run.outcome.reason


@each_api
async def test_a_passing_refusal_is_retried(api: str) -> None:
    with ScriptedModel(ModelRefusal(status=429, retry_after=0), "Now.") as model:
        run = await run_turn(AGENTS[api](model), "hello")

        assert (run.outcome, run.text, len(model.requests)) == (Completed(), "Now.", 2)


@each_api
async def test_a_cut_answer_fails_the_turn_and_keeps_the_output(api: str) -> None:
    with ScriptedModel(["Half of", ModelCut(), " it"]) as model:
        run = await run_turn(AGENTS[api](model), "hello")

        assert isinstance(run.outcome, Failed)
        assert (run.text, run.messages[-1].partial) == ("Half of", True)


@each_api
async def test_a_request_after_the_last_answer_fails_the_turn_and_says_so(api: str) -> None:
    with ScriptedModel() as model:
        run = await run_turn(AGENTS[api](model), "hello")

        assert isinstance(run.outcome, Failed)
        assert "the script has no answer to request 1" in run.outcome.reason


async def test_an_answer_can_be_a_function_of_the_request() -> None:
    def repeat(request: ModelRequest) -> str:
        return f"You said {request.body['messages'][-1]['content']}."

    with ScriptedModel(repeat) as model:
        assert (await run_turn(AGENTS["openai"](model), "tea")).text == "You said tea."


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/v1/chat/completions", lambda body: body["choices"][0]["message"]["tool_calls"][0]["function"]["name"]),
        ("/v1/messages", lambda body: body["content"][1]["name"]),
        (
            "/v1beta/models/tiny:generateContent",
            lambda body: body["candidates"][0]["content"]["parts"][1]["functionCall"]["name"],
        ),
    ],
)
def test_a_request_without_a_stream_gets_a_whole_answer(path: str, found: Callable[[Json], str]) -> None:
    with ScriptedModel(["Well. ", ToolCall("call_1", "pay", {"amount": 5})]) as model:
        answer = post(model.anthropic_url + path, {"messages": []})

    assert (answer.status_code, found(answer.json())) == (200, "pay")


def test_an_unknown_path_is_not_found_and_takes_no_answer() -> None:
    with ScriptedModel("Hello.") as model:
        assert post(model.openai_url + "/responses", {}).status_code == 404
        assert (model.answers_left, model.requests) == (1, ())


def test_an_answer_waits_at_a_hold_until_the_test_continues() -> None:
    hold = ModelHold()
    with ScriptedModel(["one ", hold, "two"]) as model, httpx2.Client(trust_env=False, timeout=120.0) as client:
        body = {"stream": True, "messages": []}
        with client.stream("POST", model.openai_url + "/chat/completions", json=body) as response:
            lines = response.iter_lines()
            before = next(line for line in lines if "one " in line)
            hold.wait()
            hold.release()
            after = next(line for line in lines if "two" in line)

    assert json.loads(before[6:])["choices"][0]["delta"] == {"content": "one "}
    assert json.loads(after[6:])["choices"][0]["delta"] == {"content": "two"}


def test_closing_a_model_ends_every_connection_and_every_thread() -> None:
    threads = set(threading.enumerate())
    hold = ModelHold()
    with (
        ScriptedModel(["one ", hold]) as model,
        httpx2.Client(trust_env=False, timeout=120.0) as client,
        client.stream("POST", model.openai_url + "/chat/completions", json={"stream": True}) as response,
    ):
        hold.wait()
        model.__exit__(None, None, None)
        with pytest.raises(httpx2.RequestError):
            response.read()
        assert not {one for one in set(threading.enumerate()) - threads if "process_request" in one.name}


@pytest.mark.parametrize("answer", [7, ["one", 7], b"one", None, {"text": "one"}])
def test_what_is_not_an_answer_is_refused_at_once(answer: object) -> None:
    with pytest.raises(ConfigError, match="not a part of a model's answer"):
        ScriptedModel(answer)  # type: ignore[arg-type]  # as a caller without a type checker may


def test_a_model_that_is_not_open_has_no_url() -> None:
    model = ScriptedModel("Hello.")
    with pytest.raises(ConfigError, match="not open"):
        model.openai_url  # noqa: B018  # raises
    with model, pytest.raises(ConfigError, match="opened before"):
        model.__enter__()
