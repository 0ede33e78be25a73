"""The OpenAI Agents SDK: each kind of session, both APIs, tools, and its own list of input put back."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import agents
import session_servers
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIConversationsSession,
    OpenAIResponsesCompactionSession,
    OpenAIResponsesModel,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from agents.extensions import memory
from agents.extensions.memory import (
    AdvancedSQLiteSession,
    AsyncSQLiteSession,
    DaprSession,
    EncryptedSession,
    MongoDBSession,
    RedisSession,
    SQLAlchemySession,
)
from openai import AsyncOpenAI


@function_tool
def weather(city: str) -> str:
    """How the weather is."""
    return f"sunny in {city}"


@asynccontextmanager
async def sessions(ai: AsyncOpenAI, folder: Path) -> AsyncIterator[dict]:
    below, compacted = SQLiteSession("below", folder / "encrypted.db"), SQLiteSession("compacted")
    async with AsyncExitStack() as stack:
        redis = RedisSession.from_url("f", url=stack.enter_context(session_servers.redis()))
        mongodb = MongoDBSession.from_uri("g", uri=await stack.enter_async_context(session_servers.mongodb(folder)))
        sidecar = await stack.enter_async_context(session_servers.dapr())
        dapr = DaprSession.from_address("h", state_store_name="store", dapr_address=sidecar)
        asynchronous = AsyncSQLiteSession("i", folder / "async.db")
        for closed in (redis, mongodb, dapr, asynchronous):
            stack.push_async_callback(closed.close)
        yield {
            "sqlite": SQLiteSession("a", folder / "plain.db"),
            "memory": SQLiteSession("b"),
            "advanced": AdvancedSQLiteSession(session_id="c", db_path=folder / "advanced.db", create_tables=True),
            "sqlalchemy": SQLAlchemySession.from_url(
                "d", url=f"sqlite+aiosqlite:///{folder}/alchemy.db", create_tables=True
            ),
            "encrypted": EncryptedSession(session_id="e", underlying_session=below, encryption_key="secret"),
            "conversations": OpenAIConversationsSession(openai_client=ai),
            "compaction": OpenAIResponsesCompactionSession(
                "compacted", compacted, client=ai, should_trigger_compaction=lambda seen: True
            ),
            "redis": redis,
            "mongodb": mongodb,
            "dapr": dapr,
            "async sqlite": asynchronous,
        }


def check_that_none_is_missing(tried: dict) -> None:
    """Every class of a session that the SDK exports is among those that are tried."""
    exported = {getattr(module, name) for module in (agents, memory) for name in module.__all__ if "Session" in name}
    kinds = {kind for kind in exported if isinstance(kind, type) and issubclass(kind, agents.SessionABC)}
    kinds.remove(agents.SessionABC)
    assert kinds == {type(session) for session in tried.values()}, kinds


ASKED = ["think about tea\ncalc 6*7", 'tool weather {"city": "Rome"}', "hello", "calc 2+3"]


async def talk(agent: Agent, session: object) -> None:
    for asked, heard in zip(ASKED, ("42", "sunny in Rome", "hello"), strict=False):
        done = await Runner.run(agent, asked, session=session)
        assert heard in done.final_output, done.final_output
    running = Runner.run_streamed(agent, ASKED[-1], session=session)
    assert [event async for event in running.stream_events()]
    assert "5" in running.final_output


async def remembers(session: object) -> None:
    """Everything is in the session, in order; the last item can be taken, and all of them removed."""
    items = await has_everything(session)
    assert await session.pop_item() == items[-1]
    assert await session.get_items() == items[:-1]
    await session.clear_session()
    assert await session.get_items() == []


async def remembers_without_taking(session: object) -> None:
    """The same for MongoDB, whose session takes an item with an update by a pipeline: nx-27017 has no such updates."""
    await has_everything(session)
    await session.clear_session()
    assert await session.get_items() == []


async def has_everything(session: object) -> list:
    items = await session.get_items()
    said = [item["content"] for item in items if item.get("role") == "user"]
    assert [words if isinstance(words, str) else words[0]["text"] for words in said] == ASKED, said
    assert await session.get_items(limit=1) == items[-1:]
    return items


async def is_compacted(session: object) -> None:
    """The session has a summary of what was said, and the last exchange."""
    summary, *exchange = await session.get_items()
    assert summary["type"] == "compaction", summary
    assert summary["encrypted_content"], summary
    assert [item["content"][0]["text"] for item in exchange if item.get("role") == "user"] == ASKED[-1:], exchange
    await session.clear_session()


REMEMBERS = {"compaction": is_compacted, "mongodb": remembers_without_taking}


async def put_back(agent: Agent) -> None:
    first = await Runner.run(agent, "think about tea\ncalc 6*7")
    second = await Runner.run(
        agent, [*first.to_input_list(), {"role": "user", "content": 'tool weather {"city": "Rome"}'}]
    )
    third = await Runner.run(agent, [*second.to_input_list(), {"role": "user", "content": "hello"}])
    assert "hello" in third.final_output
    chained = await Runner.run(agent, "hello", previous_response_id=first.last_response_id)
    assert "hello" in chained.final_output


async def main() -> None:
    set_tracing_disabled(True)
    async with AsyncOpenAI(max_retries=0) as ai:
        for model in (OpenAIResponsesModel, OpenAIChatCompletionsModel):
            agent = Agent(name="guide", instructions="Be brief.", model=model("scripted", ai), tools=[weather])
            with tempfile.TemporaryDirectory() as folder:
                async with sessions(ai, Path(folder)) as tried:
                    check_that_none_is_missing(tried)
                    for name, session in tried.items():
                        if model is OpenAIChatCompletionsModel and name in ("conversations", "compaction"):
                            # The SDK drops the ids of the items of conversations, and its converter for this API needs
                            # them. It refuses items of compactions itself.
                            continue
                        try:
                            await talk(agent, session)
                            await REMEMBERS.get(name, remembers)(session)
                        except Exception as error:
                            raise AssertionError(f"{model.__name__} with {name}") from error
            await put_back(agent)


asyncio.run(main())
