"""A program that speaks ACP through the official library, for tests: it asks before each action."""

import asyncio
from typing import Any

import acp
from acp.schema import (
    AgentCapabilities,
    AllowedOutcome,
    InitializeResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    TextContentBlock,
    ToolCallUpdate,
)

YES = PermissionOption(option_id="yes", name="Allow once", kind="allow_once")
NO = PermissionOption(option_id="no", name="Reject", kind="reject_once")


class Program:
    """Thinks, asks for permission to write, writes, and repeats its last prompt."""

    def __init__(self) -> None:
        self._client: Any = None  # Any: the library's connection, which speaks every method

    def on_connect(self, client: Any) -> None:
        self._client = client

    async def initialize(self, protocol_version: int, **about: Any) -> InitializeResponse:
        return InitializeResponse(protocol_version=protocol_version, agent_capabilities=AgentCapabilities())

    async def new_session(self, cwd: str, **about: Any) -> NewSessionResponse:
        return NewSessionResponse(session_id="the-only-one")

    async def cancel(self, session_id: str, **about: Any) -> None:
        """Every prompt ends soon."""

    async def prompt(self, prompt: list[TextContentBlock], session_id: str, **about: Any) -> PromptResponse:
        await self._client.session_update(session_id, acp.update_agent_thought_text("hm"))
        about_it = ToolCallUpdate(tool_call_id="t1", title="Write a.txt", kind="edit", raw_input={"n": 1})
        answer = await self._client.request_permission(session_id=session_id, tool_call=about_it, options=[YES, NO])
        if isinstance(answer.outcome, AllowedOutcome) and answer.outcome.option_id == "yes":
            given = [acp.tool_content(acp.text_block("written"))]
            done = acp.update_tool_call("t1", status="completed", content=given)
            await self._client.session_update(session_id, done)
        await self._client.session_update(session_id, acp.update_agent_message_text(prompt[-1].text))
        return PromptResponse(stop_reason="end_turn")


if __name__ == "__main__":
    program: Any = Program()  # Any: the library wants every method, and calls only these
    asyncio.run(acp.run_agent(program))
