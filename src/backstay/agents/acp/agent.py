"""An agent that runs a program which speaks the Agent Client Protocol (ACP)."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path

from acp.schema import PromptResponse

from backstay.agents.acp.acp_prompt import before_input, prompt_of
from backstay.agents.acp.acp_session import AcpEvent, AcpSession, AcpUpdate, PermissionRequest
from backstay.agents.acp.permission import PendingPermissions, Policy, check_policy
from backstay.agents.acp.updates import UpdateTranslator
from backstay.agents.port import AgentTurn
from backstay.agents.programs.child_process import Child, find_program
from backstay.agents.programs.environment import child_environment
from backstay.agents.roots import AgentRoots, is_too_wide
from backstay.errors import AgentFailed, ConfigError
from backstay.model.content import Body
from backstay.model.message import Message

log = logging.getLogger("backstay.agents.acp")

Bodies = AsyncGenerator[Body, None]


class AcpAgent:
    """Answers turns through a program in a process of its own.

    The program works in the directory of the session's workspace address, or else in `cwd`; that directory must be
    under one of the roots. Links are resolved when the program starts. Its environment has only the variables that
    every program needs (`backstay.agents.acp.PASSED_ON`), those in `pass_environment`, and those in `env`.

    Pass `backstay.live(lambda: AcpAgent([...]))` to an app, and each session has a process of its own that is kept
    between its turns. One object for all sessions works too: then no process is kept, and each turn starts the program.

    Args:
        command: The command line of the program, as a list of words.
        cwd: The working directory in sessions without a workspace address. It is always a root.
        roots: Directories that the program may work under. Default: `cwd`, or else the current directory, unless that
            is `/` or the home directory.
        permission: The answer when the program asks to use a tool: "ask" (a person), "allow" or "deny".
        env: Variables for its environment, in addition to those that are passed on.
        pass_environment: Names of our variables to pass on too, such as "GEMINI_API_KEY" or "GOOSE_*".
        start_seconds: How long the program may take to start.
        cancel_seconds: How long the program may take to stop after a cancel request.

    Raises:
        ConfigError: The program or a directory does not exist, or a variable name or the permission is not valid.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: str | os.PathLike[str] | None = None,
        roots: AgentRoots | Sequence[str | os.PathLike[str]] | None = None,
        permission: Policy = "ask",
        env: Mapping[str, str] | None = None,
        pass_environment: Sequence[str] = (),
        start_seconds: float = 60.0,
        cancel_seconds: float = 1.0,
    ) -> None:
        self._environment = child_environment(os.environ, pass_environment, env or {})
        self._command = _checked(command, self._environment)
        self._cwd = None if cwd is None else _directory(cwd)
        self._roots = _roots(roots, self._cwd)
        self._policy = check_policy(permission)
        self._start_seconds, self._cancel_seconds = start_seconds, cancel_seconds
        # The program that waits for the next turn. During a turn the program belongs to the turn, until it completes.
        self._waiting: AcpSession | None = None
        # Messages the program has not seen; None until `load` or `catch_up` is called.
        self._unsent: tuple[Message, ...] | None = None
        self._endings: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"AcpAgent({Path(self._command[0]).name})"

    @property
    def warm(self) -> bool:
        """Whether the program is running and waits for the next turn."""
        return self._waiting is not None and not self._waiting.over

    async def load(self, messages: tuple[Message, ...]) -> None:
        """Store these messages, the history; they are sent to the program with the next prompt."""
        self._unsent = messages

    async def catch_up(self, messages: tuple[Message, ...]) -> None:
        """Store the messages of others; they are sent to the program with the next prompt."""
        self._unsent = (*(self._unsent or ()), *messages)

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        """Answer one turn. If it does not complete, end the program, because the state of its memory is unknown."""
        conversation, parts = await self._ready(turn)
        completed = False
        try:
            async with aclosing(self._answer(turn, conversation, parts)) as words:
                async for body in words:
                    yield body
            completed = True
        finally:
            if completed and self._unsent is not None and not conversation.over:
                self._waiting, self._unsent = conversation, ()
            else:
                self._end(conversation.close())

    async def aclose(self) -> None:
        """End the program and wait until it has exited."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._end(waiting.close())
        if self._endings:
            await asyncio.wait(self._endings)

    # --- the program --------------------------------------------------------------------------------------------------

    async def _ready(self, turn: AgentTurn) -> tuple[AcpSession, list[str]]:
        """Return a program that can be prompted, and the prompt."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.over:
            return waiting, prompt_of(turn, self._unsent or (), fresh=False)
        if waiting is not None:
            self._end(waiting.close())
        if waiting is not None or self._unsent is None:
            # The program that had the history has exited, or we have no history: take it from the turn, which may read
            # it from the store.
            earlier = await asyncio.to_thread(before_input, turn)
        else:
            earlier = self._unsent
        return await self._begin(turn), prompt_of(turn, earlier, fresh=True)

    async def _begin(self, turn: AgentTurn) -> AcpSession:
        """Start a new process with an empty ACP session."""
        cwd = await self._place(turn)
        starting = asyncio.create_task(Child.start(self._command, cwd, self._environment, self._roots))
        try:
            child = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._end(_close_once_started(starting))
            raise
        conversation = AcpSession(child)
        try:
            await conversation.open(child.directory, self._start_seconds)
        except BaseException:
            self._end(conversation.close())
            raise
        log.info("agent started", extra={"agent": child.name, "pid": child.pid, "session": turn.session})
        return conversation

    async def _place(self, turn: AgentTurn) -> str:
        """Return the working directory as it was named; whether it is allowed is checked when the program starts."""
        about = await turn.workspace()
        if about is None:
            if self._cwd is None:
                raise AgentFailed(
                    "this session has no directory, and the agent needs one to work in",
                    hint="Send with --workspace DIR, or set agent_directory (in Python: cwd=).",
                )
            return self._cwd
        if is_too_wide(about) and about not in self._roots.paths:
            raise AgentFailed(
                f"the directory of this session is {about}, and the agent could change everything in it",
                hint="Use the directory of a project, or add this one to agent_roots (in Python: roots=).",
            )
        return about

    def _end(self, ending: Coroutine[object, object, None]) -> None:
        """End a program in a task of its own, so that cancelling the turn does not stop the cleanup."""
        try:
            task = asyncio.create_task(ending, name="end of an ACP agent")
        except RuntimeError:
            ending.close()  # The loop is closed and our process is about to exit: the leash ends the program then.
            return
        self._endings.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._endings.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("agent did not end cleanly", extra={"agent": repr(self)}, exc_info=error)

    # --- a turn -------------------------------------------------------------------------------------------------------

    async def _answer(self, turn: AgentTurn, conversation: AcpSession, parts: Sequence[str]) -> Bodies:
        translator, permissions = UpdateTranslator(conversation.cost), PendingPermissions(turn, self._policy)
        try:
            async with aclosing(conversation.prompt(parts)) as events:
                async for event in events:
                    for body in _bodies_of(event, translator, permissions):
                        yield body
            conversation.cost = translator.cost
        except asyncio.CancelledError:
            await conversation.cancel(self._cancel_seconds)
            raise
        finally:
            await permissions.drop()


def _bodies_of(event: AcpEvent, translator: UpdateTranslator, permissions: PendingPermissions) -> Iterator[Body]:
    match event:
        case AcpUpdate(update):
            yield from translator.translate(update)
        case PermissionRequest(request, answer):
            yield from translator.call(request.tool_call)
            permissions.ask(request, translator.about(request.tool_call), answer)
        case PromptResponse():
            for call in permissions.denied:
                yield from translator.refused(call)
            yield from translator.finish(event)
            _raise_unless_finished(event)


def _raise_unless_finished(answer: PromptResponse) -> None:
    """Raise if the agent refused or cancelled. An answer that was cut short counts as an answer."""
    if answer.stop_reason == "refusal":
        raise AgentFailed("the agent refused to continue", hint="Rephrase the message, or undo the turn.")
    if answer.stop_reason == "cancelled":
        raise AgentFailed("the agent cancelled the turn itself")


async def _close_once_started(starting: "asyncio.Task[Child]") -> None:
    with suppress(AgentFailed):
        await (await starting).close()


def _checked(command: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command with the full path of its program; raise `ConfigError` if it is not valid."""
    if isinstance(command, str) or not command or not all(isinstance(word, str) for word in command):
        raise ConfigError(
            f"{command!r} is not a command", hint="Pass the command as a list, such as ['gemini', '--acp']."
        )
    if any("\0" in word for word in command):
        raise ConfigError("a command cannot contain a NUL character", hint="Remove it.")
    program = find_program(command, environment)
    if program is None:
        raise ConfigError(
            f"the program {command[0]!r} was not found, or is not executable", hint="Install it, or give its path."
        )
    return (program, *command[1:])


def _roots(roots: AgentRoots | Sequence[str | os.PathLike[str]] | None, cwd: str | None) -> AgentRoots:
    own = () if cwd is None else (cwd,)
    if isinstance(roots, AgentRoots):
        return AgentRoots((*roots.paths, *own), roots.private)
    if roots is not None:
        return AgentRoots.of((*roots, *own))
    here = os.path.realpath(Path.cwd())
    return AgentRoots.of(own or (() if is_too_wide(here) else (here,)))


def _directory(path: str | os.PathLike[str]) -> str:
    found = Path(path).expanduser()
    if not found.is_dir():
        raise ConfigError(f"{path} is not a directory", hint="Name a directory that the agent may work in.")
    return str(found.resolve())
