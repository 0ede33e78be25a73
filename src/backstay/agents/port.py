"""The interface between a turn and the agent that answers it."""

from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any, Protocol, runtime_checkable

from backstay.agents.tools import Tool
from backstay.model.content import Attachment, Body, Json, ToolCall, ToolResult
from backstay.model.ids import SessionId, TurnId, WindowId
from backstay.model.limits import READ_LIMIT
from backstay.model.message import Message
from backstay.model.search.results import SearchPage
from backstay.model.turn import Steering


class AgentTurn(Protocol):
    """A running turn, as its agent sees it."""

    @property
    def id(self) -> TurnId:
        """The id of the turn."""
        ...

    @property
    def session(self) -> SessionId:
        """The id of the session that the turn runs in."""
        ...

    @property
    def owner(self) -> str:
        """The owner of the session."""
        ...

    @property
    def window(self) -> WindowId:
        """The current window of the session. A compaction in the middle of the turn changes it."""
        ...

    @property
    def input(self) -> Message:
        """The message that the agent must answer."""
        ...

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history up to and including the input. Always valid for a provider: every call has exactly one result."""
        ...

    @property
    def earlier_output(self) -> tuple[Message, ...]:
        """The agent's output in this turn before it was interrupted or compacted; empty in a turn that just starts.

        Not passed to `load`. A live agent must add these messages to its own memory: the pool will reuse the agent as
        if it had seen them.
        """
        ...

    @property
    def pending_calls(self) -> tuple[ToolCall, ...]:
        """Calls of the interrupted turn that this one resumes, which waited for a person or may now run once more.

        The agent should make them first, with `call`: the person has decided about them, or is asked again. Empty in a
        turn that just starts.
        """
        ...

    @property
    def cancelled(self) -> bool:
        """Whether the turn was asked to stop. The agent should then return soon."""
        ...

    async def steering(self) -> tuple[Steering, ...]:
        """Take the inputs that arrived for this turn since the last call.

        Returns:
            The inputs, oldest first; empty if there are none. They are part of this turn from now on, and no other
            turn will answer them.
        """
        ...

    async def workspace(self) -> str | None:
        """Return the directory of the session: the path of the workspace address that points to it.

        Returns:
            The path, or None if no workspace address on this machine points to the session, or if addresses with
            different directories do.
        """
        ...

    async def search(self, text: str, *, limit: int = 5) -> SearchPage:
        """Search the messages of all sessions of the owner.

        Args:
            text: The words to search for.
            limit: The highest number of hits.

        Returns:
            The hits, best first.
        """
        ...

    async def read(self, attachment: Attachment, *, limit: int = READ_LIMIT) -> bytes:
        """Read the bytes of an attachment of the input, of an earlier message or of a tool's result.

        Args:
            attachment: The attachment, as it is in `parts`.
            limit: The most bytes that are read into memory.

        Returns:
            All bytes of the attachment.

        Raises:
            TooLarge: The attachment has more than `limit` bytes. Use `read_pieces`.
            NotFound: The owner has no such attachment.
            InvalidPayload: The value is not an attachment.
        """
        ...

    def read_pieces(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """Read the bytes of an attachment piece by piece, with at most 1 MiB in memory.

        Args:
            attachment: The attachment, as it is in `parts`.

        Yields:
            The pieces, in order.

        Raises:
            NotFound: The owner has no such attachment.
            InvalidPayload: The value is not an attachment.
        """
        ...

    async def call(
        self, tool: Tool, arguments: Mapping[str, Json], *, run_again: bool = False, id: str | None = None
    ) -> Any:  # Any: the JSON that the tool returns
        """Run a tool through the ledger: its intent is durable before it runs, its result after.

        Only tools that are called this way are guaranteed not to run twice unnoticed.

        Args:
            tool: The tool to run.
            arguments: The arguments of its function. The order of the keys does not matter: calls of one tool with
                equal arguments are the same call.
            run_again: Run the tool under a new key although an earlier call of it with these arguments may have run. A
                stored result is returned nevertheless.
            id: The id of the call in the history, unique within the turn; by default the runtime makes one.

        Returns:
            The result of the tool.

        Raises:
            MayHaveRun: An earlier call of this tool with these arguments may have run, in this turn or in one that it
                resumes. It is raised for every such call until a person allows one, or `run_again` is passed.
            ToolFailed: The tool raised an exception, or a person denied the call.
        """
        ...

    def recorded(self, ids: Collection[str]) -> tuple[ToolCall | ToolResult, ...]:
        """Return calls that were made in this turn, and their results, as later turns will read them.

        Args:
            ids: The ids that were passed to `call`.

        Returns:
            The calls and results in the order of the history. It lacks a call that was not made, because an equal
            one has a result or may have run.
        """
        ...


@runtime_checkable
class Agent(Protocol):
    """An object that answers turns. Its output is stored and shown at once, and becomes messages when the turn ends."""

    def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        """Answer one turn.

        Args:
            turn: The turn to answer.

        Returns:
            An async iterator of the output. An exception that it raises ends the turn as failed; the output before it
            is kept.
        """
        ...

    async def aclose(self) -> None:
        """Release the resources of the agent."""
        ...


@runtime_checkable
class Loads(Protocol):
    """A live agent that receives the history once, when it is created, instead of reading it in every turn."""

    async def load(self, messages: tuple[Message, ...]) -> None:
        """Store the history before the next turn.

        Args:
            messages: The messages of the window before the input of the next turn.
        """
        ...


@runtime_checkable
class CatchesUp(Protocol):
    """A live agent that can receive the messages that others added, instead of being created again."""

    async def catch_up(self, messages: tuple[Message, ...]) -> None:
        """Store the messages that others added to the session since this agent's last turn.

        Args:
            messages: The added messages, oldest first.
        """
        ...
