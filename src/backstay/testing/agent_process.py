"""An agent in a process of its own, which a test kills."""

import asyncio
import inspect
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self, cast

import msgspec

from backstay.agents.adapters import AgentLike
from backstay.errors import ConfigError
from backstay.testing.agent_child import ChildReport, ChildSettings


class AgentProcess:
    """A child process that opens an app on a store and answers turns there, until a test ends or kills it.

    The test itself opens an app without agents on the same store: it sends messages and follows them, and this process
    answers. Use it with `with` or `async with`. The process also ends when the process of the test ends.

    The arguments `kill_…` say where the process kills itself with SIGKILL. Nothing is cleaned up then, as when the
    kernel ends a process or its machine loses power.

    Args:
        where: The path or URL of the store.
        agent: The agent, as `backstay serve --agent` takes it: `module:attribute`, found on the test's `sys.path`. Or a
            function or class of a module that can be imported.
        on_interrupt: With `resume`, the process continues interrupted turns when it finds them.
        lease_seconds: After this many seconds without a sign of life, the process counts as dead. On SQLite a process
            of the same machine counts as dead at once.
        env: Variables for its environment, in addition to those of the test.
        kill_before_tool: The name of a tool: the process dies when the intent to call it is stored and before it runs.
        kill_after_tool: The name of a tool: the process dies when it has run and before its result is stored.
        kill_after_writes: The process dies when it has committed this many writes.
        timeout_seconds: How many seconds it may take to start and to end.

    Raises:
        ConfigError: The agent is not the name of one, and cannot be imported by name.
    """

    def __init__(
        self,
        where: str | Path,
        agent: str | AgentLike,
        *,
        on_interrupt: Literal["leave", "resume"] = "leave",
        lease_seconds: float = 30.0,
        env: Mapping[str, str] | None = None,
        kill_before_tool: str | None = None,
        kill_after_tool: str | None = None,
        kill_after_writes: int | None = None,
        timeout_seconds: float = 120.0,
    ) -> None:
        self._settings = ChildSettings(
            where=str(where),
            agent=agent if isinstance(agent, str) else _name_of(agent),
            on_interrupt=on_interrupt,
            lease_seconds=lease_seconds,
            kill_before_tool=kill_before_tool,
            kill_after_tool=kill_after_tool,
            kill_after_writes=kill_after_writes,
        )
        self._environment, self._timeout = dict(env or {}), timeout_seconds
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if self._process is not None:
            raise ConfigError("the agent's process was started before", hint="Make another AgentProcess.")
        path = os.pathsep.join(str(Path(entry).resolve()) for entry in ["", *sys.path])
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from backstay.testing.agent_child import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, **self._environment},
        )
        try:
            self._send_settings()
            self._wait_until_ready()
        except BaseException:
            self.kill()
            self._close_pipes()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._close_pipes()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._started.pid

    @property
    def killed(self) -> bool:
        """Whether it was killed, by the test or by itself."""
        return self._started.poll() == -signal.SIGKILL

    def kill(self) -> None:
        """Kill it with SIGKILL. It is dead when this returns."""
        self._started.kill()
        self._started.wait(self._timeout)

    def stop(self) -> None:
        """Let it close its app, which gives running turns their grace time. It has ended when this returns.

        Raises:
            TimeoutError: It did not end in time, and was killed.
        """
        process = self._started
        if process.stdin is not None and not process.stdin.closed:
            process.stdin.close()
        try:
            process.wait(self._timeout)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise TimeoutError(f"the agent's process did not end within {self._timeout:g} s") from error

    async def ended(self) -> int:
        """Wait until it has ended, for a process that kills itself.

        Returns:
            Its exit status, negative after a signal: `-signal.SIGKILL` if it was killed.

        Raises:
            TimeoutError: It did not end in time.
        """
        try:
            return await asyncio.to_thread(self._started.wait, self._timeout)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"the agent's process did not end within {self._timeout:g} s") from error

    @property
    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise ConfigError("the agent's process was not started", hint="Use it inside `with AgentProcess(…)`.")
        return self._process

    def _send_settings(self) -> None:
        pipe = cast("IO[bytes]", self._started.stdin)
        try:
            pipe.write(msgspec.json.encode(self._settings) + b"\n")
            pipe.flush()
        except BrokenPipeError:
            return  # it has ended; the missing report says so

    def _wait_until_ready(self) -> None:
        pipe = cast("IO[bytes]", self._started.stdout)
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            if not selector.select(self._timeout):
                raise TimeoutError(f"the agent's process did not start within {self._timeout:g} s")
        line = pipe.readline()
        if not line:
            raise ConfigError("the agent's process ended before it was ready", hint="Its output says why.")
        report = msgspec.json.decode(line, type=ChildReport)
        if report.error:
            raise ConfigError(report.error, hint=report.hint or None)

    def _close_pipes(self) -> None:
        for pipe in (self._started.stdin, self._started.stdout):
            if pipe is not None:
                pipe.close()


def _name_of(agent: AgentLike) -> str:
    """The name under which another process imports this function or class."""
    module, name = getattr(agent, "__module__", "__main__"), getattr(agent, "__qualname__", "")
    importable = (inspect.isfunction(agent) or inspect.isclass(agent)) and module != "__main__" and "<" not in name
    if not importable:
        raise ConfigError(
            f"another process cannot import {agent!r}",
            hint="Put it at the top of a module, and name it as module:attribute.",
        )
    return f"{module}:{name}"
