"""One turn of the OpenAI-compatible agent with a fake provider, and its results."""

import asyncio
from typing import Any, NamedTuple

from backstay.agents.provider.openai_compatible import OpenAICompatible
from backstay.errors import BackstayError
from backstay.model.content import Body
from tests.agents.fake_turn import LooseTurn, output_of, text_in
from tests.agents.provider.fake_provider import FakeProvider, Json, Play, Request

KEY = "sk-the-secret-of-the-house-0123456789"


class TurnResult(NamedTuple):
    """`waits` are the pauses between attempts; the test does not wait for them."""

    bodies: list[Body]
    error: BackstayError | None
    requests: list[Request]
    waits: list[float]
    connections: int

    @property
    def text(self) -> str:
        return text_in(self.bodies)

    @property
    def sent(self) -> list[Json]:
        """The messages of each request."""
        return [request.body["messages"] for request in self.requests]


def ask(*plays: Play, turn: LooseTurn | None = None, **settings: Any) -> TurnResult:
    """Run one turn to its end. Chances are always the middle, so waits are known."""
    return asyncio.run(_ask(plays, turn or LooseTurn(), settings))


async def _ask(plays: tuple[Play, ...], turn: LooseTurn, settings: dict[str, Any]) -> TurnResult:
    bodies: list[Body] = []
    waits: list[float] = []

    async def pause(seconds: float) -> None:
        waits.append(seconds)

    error: BackstayError | None = None
    async with FakeProvider(*plays) as provider:
        usual: dict[str, Any] = {"model": "tiny", "api_key": KEY, "pause": pause, "chance": lambda: 0.5}
        settings = usual | settings
        agent = OpenAICompatible(settings.pop("base_url", provider.base_url), **settings)
        try:
            await output_of(agent, turn, bodies.append)
        except BackstayError as raised:
            error = raised
        finally:
            await agent.aclose()
    return TurnResult(bodies, error, provider.requests, waits, provider.connections)
