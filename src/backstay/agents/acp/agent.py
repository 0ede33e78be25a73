"""An agent that answers through a program which speaks the Agent Client Protocol (ACP)."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path

from acp.schema import PromptResponse

from backstay.agents.acp.child import Child, find_program, surroundings
from backstay.agents.acp.conversation import Asked, Conversation, Happening, Reported
from backstay.agents.acp.permission import Policy, Questions, check_policy
from backstay.agents.acp.prompt import before_input, prompt_of
from backstay.agents.acp.telling import Telling
from backstay.agents.port import AgentTurn
from backstay.errors import AgentFailed, ConfigError
from backstay.model.content import Body
from backstay.model.message import Message

log = logging.getLogger("backstay.agents.acp")

Words = AsyncGenerator[Body, None]


class AcpAgent:
    """Lets a program answer, in a process of its own.

    `command` is how the program is started. It works in the directory that the session is about, or else in `cwd`.
    When it asks for `permission` to use a tool, a person is asked ("ask"), or whoever made this agent has answered
    ("allow", "deny"). It has our environment, without our secrets, and `env` besides. `start_seconds` is how long it
    may take to begin, `cancel_seconds` how long to stop in good order.

    Hand `backstay.live(lambda: AcpAgent([...]))` to an app, and each session has a process of its own that is kept
    between its turns. One object for all sessions works too: nothing is kept then, and each turn starts the program.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: str | os.PathLike[str] | None = None,
        permission: Policy = "ask",
        env: Mapping[str, str] | None = None,
        start_seconds: float = 60.0,
        cancel_seconds: float = 1.0,
    ) -> None:
        self._environment = surroundings(os.environ, env or {})
        self._command = _checked(command, self._environment)
        self._cwd = None if cwd is None else _directory(cwd)
        self._policy = check_policy(permission)
        self._start_seconds, self._cancel_seconds = start_seconds, cancel_seconds
        # The program that waits for the next turn. One that answers belongs to its turn until that has completed.
        self._waiting: Conversation | None = None
        # What the program has not been told yet; None as long as nobody tells us what is said besides its turns.
        self._untold: tuple[Message, ...] | None = None
        self._endings: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"AcpAgent({Path(self._command[0]).name})"

    @property
    def warm(self) -> bool:
        """Whether its program runs and waits for the next turn."""
        return self._waiting is not None and not self._waiting.over

    async def load(self, messages: tuple[Message, ...]) -> None:
        """Learn what was said before; the program is told when there is something to answer."""
        self._untold = messages

    async def catch_up(self, messages: tuple[Message, ...]) -> None:
        """Learn what others added; the program is told with the next prompt."""
        self._untold = (*(self._untold or ()), *messages)

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        """Answer one turn. Unless it completes, the program is ended: nobody knows what it remembers."""
        conversation, parts = await self._ready(turn)
        completed = False
        try:
            async with aclosing(self._answer(turn, conversation, parts)) as words:
                async for body in words:
                    yield body
            completed = True
        finally:
            if completed and self._untold is not None and not conversation.over:
                self._waiting, self._untold = conversation, ()
            else:
                self._end(conversation.close())

    async def aclose(self) -> None:
        """End the program and wait until it is gone."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._end(waiting.close())
        if self._endings:
            await asyncio.wait(self._endings)

    # --- the program --------------------------------------------------------------------------------------------------

    async def _ready(self, turn: AgentTurn) -> tuple[Conversation, list[str]]:
        """A program that can be asked, and what to ask it with."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.over:
            return waiting, prompt_of(turn, self._untold or (), fresh=False)
        if waiting is not None:
            self._end(waiting.close())
        if waiting is not None or self._untold is None:
            # One that knew it is gone, or nobody has told us: the turn knows, and may have to read it.
            earlier = await asyncio.to_thread(before_input, turn)
        else:
            earlier = self._untold
        return await self._begin(turn), prompt_of(turn, earlier, fresh=True)

    async def _begin(self, turn: AgentTurn) -> Conversation:
        """A new process, with a session of its own that knows nothing yet."""
        cwd = await self._place(turn)
        starting = asyncio.create_task(Child.start(self._command, cwd, self._environment))
        try:
            child = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._end(_close_once_started(starting))
            raise
        conversation = Conversation(child)
        try:
            await conversation.open(cwd, self._start_seconds)
        except BaseException:
            self._end(conversation.close())
            raise
        log.info("agent started", extra={"agent": child.name, "pid": child.pid, "session": turn.session})
        return conversation

    async def _place(self, turn: AgentTurn) -> str:
        """Where the program works; never a directory that nobody has chosen."""
        about = await turn.workspace()
        if about is None:
            if self._cwd is None:
                raise AgentFailed(
                    "this session is about no directory, and the agent would work in one",
                    hint="Send with --workspace DIR, or set agent_directory (in Python: cwd=).",
                )
            return self._cwd
        if about != self._cwd and about in ("/", str(Path.home())):
            raise AgentFailed(
                f"this session is about {about}, and the agent could change everything in it",
                hint="Go to the directory of a project, or name this one as agent_directory (in Python: cwd=).",
            )
        if not Path(about).is_dir():  # noqa: ASYNC240  # one look at a directory that is about to be used
            raise AgentFailed(f"this session is about {about}, which is no directory here")
        return about

    def _end(self, ending: Coroutine[object, object, None]) -> None:
        """Have a program ended, by a task of its own that cancelling a turn does not reach."""
        try:
            task = asyncio.create_task(ending, name="end of an ACP agent")
        except RuntimeError:
            ending.close()  # The loop is gone, and we are about to be: the leash ends it then.
            return
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)

    # --- a turn -------------------------------------------------------------------------------------------------------

    async def _answer(self, turn: AgentTurn, conversation: Conversation, parts: Sequence[str]) -> Words:
        telling, questions = Telling(conversation.cost), Questions(turn, self._policy)
        try:
            async with aclosing(conversation.prompt(parts)) as happenings:
                async for happening in happenings:
                    for body in _told(happening, telling, questions):
                        yield body
            conversation.cost = telling.cost
        except asyncio.CancelledError:
            await conversation.cancel(self._cancel_seconds)
            raise
        finally:
            questions.drop()


def _told(happening: Happening, telling: Telling, questions: Questions) -> Iterator[Body]:
    match happening:
        case Reported(update):
            yield from telling.tell(update)
        case Asked(request, answer):
            yield from telling.call(request.tool_call)
            questions.ask(request, telling.about(request.tool_call), answer)
        case PromptResponse():
            for call in questions.denied:
                yield from telling.refused(call)
            yield from telling.finish(happening)
            _judge(happening)


def _judge(answer: PromptResponse) -> None:
    """Raise if the agent did not answer; one that was only cut short has."""
    if answer.stop_reason == "refusal":
        raise AgentFailed("the agent refused to go on", hint="Say it differently, or undo the turn.")
    if answer.stop_reason == "cancelled":
        raise AgentFailed("the agent cancelled the turn itself")


async def _close_once_started(starting: "asyncio.Task[Child]") -> None:
    with suppress(AgentFailed):
        await (await starting).close()


def _checked(command: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """The command with the full path of its program, or a refusal."""
    if isinstance(command, str) or not command or not all(isinstance(word, str) for word in command):
        raise ConfigError(f"{command!r} is no command", hint="Pass its words: ['gemini', '--acp'].")
    if any("\0" in word for word in command):
        raise ConfigError("a command cannot hold a NUL character", hint="Remove it.")
    program = find_program(command, environment)
    if program is None:
        raise ConfigError(
            f"there is no program {command[0]!r} that could be run", hint="Install it, or give the path to it."
        )
    return (program, *command[1:])


def _directory(path: str | os.PathLike[str]) -> str:
    found = Path(path).expanduser()
    if not found.is_dir():
        raise ConfigError(f"{path} is no directory", hint="Name one in which the agent may work.")
    return str(found.resolve())
