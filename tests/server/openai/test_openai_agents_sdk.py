"""The OpenAI Agents SDK, as it is installed: our conversations as its session store, our agents as its models."""

import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from tests.databases import Place
from tests.server.agents import AGENTS
from tests.server.openai.openai_client import async_client_of
from tests.server.running_server import RunningServer, run_server

if TYPE_CHECKING:
    from agents import OpenAIConversationsSession

# These tests are about code above the store, or about rules of its contract: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")


@pytest.fixture(scope="module")
def sdk() -> ModuleType:
    """The SDK. Loading it takes seconds, in every process that collects tests: only the one that uses it does."""
    found = import_module("agents")
    found.set_tracing_disabled(True)
    return found


def with_session(
    sdk: ModuleType, server: RunningServer, use: "Callable[[OpenAIConversationsSession], Awaitable[None]]"
) -> None:
    async def run() -> None:
        async with async_client_of(server) as client:
            await use(sdk.OpenAIConversationsSession(openai_client=client))

    asyncio.run(run())


def words(items: list[Any]) -> list[str]:
    return [item["content"] if isinstance(item["content"], str) else item["content"][0]["text"] for item in items]


def test_our_conversations_are_a_session_store(sdk: ModuleType, place: Place) -> None:
    async def use(session: "OpenAIConversationsSession") -> None:
        assert await session.get_items() == []
        assert await session.pop_item() is None
        said: list[Any] = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"word {n}"} for n in range(45)]
        for start in range(0, 45, 15):  # The API takes 20 at a time; older versions of the SDK do not know.
            await session.add_items(said[start : start + 15])

        assert words(await session.get_items()) == [f"word {n}" for n in range(45)]
        assert words(await session.get_items(limit=3)) == ["word 42", "word 43", "word 44"]
        assert await session.get_items(limit=0) == []

        popped = await session.pop_item()
        assert popped is not None
        assert words([popped]) == ["word 44"]
        assert words(await session.get_items(limit=2)) == ["word 42", "word 43"]
        await session.add_items([{"role": "user", "content": "after"}])
        assert words(await session.get_items(limit=2)) == ["word 43", "after"]

        first = session.session_id
        await session.clear_session()
        assert await session.get_items() == []
        assert session.session_id != first

    with run_server(place, AGENTS) as server:
        with_session(sdk, server, use)


def test_items_of_the_sdk_can_be_stored_again(sdk: ModuleType, server: RunningServer) -> None:
    async def use(session: "OpenAIConversationsSession") -> None:
        items: list[Any] = [
            {"role": "user", "content": "look"},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at": 1}', "id": "fc_1"},
            {"type": "function_call", "call_id": "c2", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "green"},
            {"type": "function_call_output", "call_id": "c2", "output": "tea"},
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "done", "annotations": [], "logprobs": []}],
            },
        ]
        await session.add_items(items)
        once = await session.get_items()
        await session.clear_session()
        await session.add_items(once)
        twice = await session.get_items()

        def plain(found: list[Any]) -> list[Any]:
            return [{name: value for name, value in item.items() if name != "id"} for item in found]

        assert plain(twice) == plain(once)
        assert len(once) == len(items)
        for left in range(len(items), 0, -1):
            assert len(await session.get_items()) == left
            await session.pop_item()
        assert await session.get_items() == []

    with_session(sdk, server, use)


@pytest.mark.parametrize("streamed", [True, False])
def test_an_agent_of_the_sdk_runs_on_an_agent_of_ours_with_tools_on_both_sides(
    sdk: ModuleType, server: RunningServer, streamed: bool
) -> None:
    looked: list[str] = []

    def weather(city: str) -> str:
        """How the weather is."""
        looked.append(city)
        return f"sunny in {city}"

    async def use() -> None:
        async with async_client_of(server) as client:
            model = sdk.OpenAIResponsesModel(model="scripted", openai_client=client)
            agent = sdk.Agent(name="guide", instructions="Be brief.", model=model, tools=[sdk.function_tool(weather)])
            conversation = (await client.conversations.create()).id
            asked = 'calc 6*7\ntool weather {"city":"Rome"}'
            if streamed:
                running = sdk.Runner.run_streamed(agent, asked, conversation_id=conversation)
                kinds = [event.type async for event in running.stream_events()]
                assert "raw_response_event" in kinds
                output = running.final_output
            else:
                output = (await sdk.Runner.run(agent, asked, conversation_id=conversation)).final_output
            assert output.strip() == "You gave me: sunny in Rome"
            assert looked == ["Rome"]
            listed = [item.type async for item in client.conversations.items.list(conversation, order="asc")]
            assert listed == ["message", "mcp_call", "message", "function_call", "function_call_output", "message"]

    asyncio.run(use())
