"""The agents of all providers, with fakes that speak their languages: rules that hold for each are written once."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from backstay.agents.provider.anthropic.anthropic_agent import AnthropicAgent
from backstay.agents.provider.gemini.gemini_agent import GeminiAgent
from backstay.agents.provider.model_agent import ModelAgent
from backstay.agents.provider.openai_compatible import OpenAICompatible
from tests.agents.provider import fake_anthropic, fake_gemini, fake_provider
from tests.agents.provider.fake_provider import FakeProvider, Play, Request


class Wish(NamedTuple):
    """A tool call of a model."""

    id: str
    name: str
    arguments: dict[str, Any]


class Dialect(NamedTuple):
    """One provider.

    `check` asserts that the provider would accept a request. `texts` are the texts in a request.
    """

    name: str
    agent: Callable[..., ModelAgent[Any]]
    answers: Callable[[str], Play]
    calls: Callable[..., Play]
    begins: Callable[[], bytes]
    cut_off: Callable[[str], tuple[bytes, ...]]
    check: Callable[[Request], None]
    closing: bytes
    key_header: tuple[str, str]
    takes: frozenset[str]


def _openai(provider: FakeProvider, **settings: Any) -> OpenAICompatible:
    return OpenAICompatible(provider.base_url, "tiny", **settings)


def _anthropic(provider: FakeProvider, **settings: Any) -> AnthropicAgent:
    return AnthropicAgent("tiny", base_url=provider.base_url.removesuffix("/v1"), **({"thinking": 1024} | settings))


def _gemini(provider: FakeProvider, **settings: Any) -> GeminiAgent:
    return GeminiAgent("tiny", base_url=provider.base_url + "beta", **settings)


def _openai_calls(text: str, *wishes: Wish) -> Play:
    wanted = [
        fake_provider.wants(number, wish.id, wish.name, json.dumps(wish.arguments))
        for number, wish in enumerate(wishes)
    ]
    thought = fake_provider.chunk({"reasoning": "hm"})
    return fake_provider.calls(thought, fake_provider.words(text), thought, *wanted)


def _anthropic_calls(text: str, *wishes: Wish) -> Play:
    wanted = [
        fake_anthropic.wants(number + 4, wish.id, wish.name, json.dumps(wish.arguments))
        for number, wish in enumerate(wishes)
    ]
    thoughts = [
        fake_anthropic.thought(0, "hm"),
        fake_anthropic.redacted(1, "c2VjcmV0"),
        fake_anthropic.thought(2, "so"),
    ]
    return fake_anthropic.calls(*thoughts, fake_anthropic.words(3, text), *wanted)


def _gemini_calls(text: str, *wishes: Wish) -> Play:
    wanted = [
        fake_gemini.wants(wish.id, wish.name, wish.arguments, signed=number == 0) for number, wish in enumerate(wishes)
    ]
    return fake_gemini.calls(fake_gemini.thought("hm"), fake_gemini.words(text), *wanted)


def _openai_check(request: Request) -> None:
    assert request.path == "/v1/chat/completions"


OPENAI = Dialect(
    name="openai",
    agent=_openai,
    answers=fake_provider.answers,
    calls=_openai_calls,
    begins=lambda: fake_provider.chunk({"role": "assistant", "content": ""}),
    cut_off=lambda text: (fake_provider.words(text),),
    check=_openai_check,
    closing=b"]}",
    key_header=("authorization", "Bearer "),
    takes=OpenAICompatible.takes,
)
ANTHROPIC = Dialect(
    name="anthropic",
    agent=_anthropic,
    answers=fake_anthropic.answers,
    calls=_anthropic_calls,
    begins=fake_anthropic.start,
    cut_off=lambda text: (fake_anthropic.start(), fake_anthropic.words(0, text)),
    check=fake_anthropic.check,
    closing=b"]}]}",
    key_header=("x-api-key", ""),
    takes=AnthropicAgent.takes,
)
GEMINI = Dialect(
    name="gemini",
    agent=_gemini,
    answers=fake_gemini.answers,
    calls=_gemini_calls,
    begins=fake_gemini.chunk,
    cut_off=lambda text: (fake_gemini.words(text),),
    check=fake_gemini.check,
    closing=b"]}]}",
    key_header=("x-goog-api-key", ""),
    takes=GeminiAgent.takes,
)
DIALECTS = (OPENAI, ANTHROPIC, GEMINI)
