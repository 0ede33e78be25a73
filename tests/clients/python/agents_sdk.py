"""The OpenAI Agents SDK: each kind of session, both APIs, tools, and its own list of input put back."""

import asyncio
import tempfile
from pathlib import Path

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIConversationsSession,
    OpenAIResponsesModel,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from agents.extensions.memory import AdvancedSQLiteSession, EncryptedSession, SQLAlchemySession
from openai import AsyncOpenAI


@function_tool
def weather(city: str) -> str:
    """How the weather is."""
    return f"sunny in {city}"


def sessions(ai: AsyncOpenAI, folder: Path) -> dict:
    below = SQLiteSession("below", folder / "encrypted.db")
    return {
        "sqlite": SQLiteSession("a", folder / "plain.db"),
        "memory": SQLiteSession("b"),
        "advanced": AdvancedSQLiteSession(session_id="c", db_path=folder / "advanced.db", create_tables=True),
        "sqlalchemy": SQLAlchemySession.from_url(
            "d", url=f"sqlite+aiosqlite:///{folder}/alchemy.db", create_tables=True
        ),
        "encrypted": EncryptedSession(session_id="e", underlying_session=below, encryption_key="secret"),
        "conversations": OpenAIConversationsSession(openai_client=ai),
    }


async def talk(agent: Agent, session: object) -> None:
    for asked, heard in (
        ("think about tea\ncalc 6*7", "42"),
        ('tool weather {"city": "Rome"}', "sunny in Rome"),
        ("hello", "hello"),
    ):
        done = await Runner.run(agent, asked, session=session)
        assert heard in done.final_output, done.final_output
    running = Runner.run_streamed(agent, "calc 2+3", session=session)
    assert [event async for event in running.stream_events()]
    assert "5" in running.final_output


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
                for name, session in sessions(ai, Path(folder)).items():
                    if model is OpenAIChatCompletionsModel and name == "conversations":
                        continue  # The SDK drops the ids of these items, and its converter for this API needs them.
                    try:
                        await talk(agent, session)
                    except Exception as error:
                        raise AssertionError(f"{model.__name__} with {name}") from error
            await put_back(agent)


asyncio.run(main())
