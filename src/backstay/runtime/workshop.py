"""The workshop: where tools run. Each that blocks gets a thread of its own, so that one that hangs holds up nobody."""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from backstay.agents.tools import Tool
from backstay.model.content import Json


class ToolExited(Exception):
    """A tool ended without a result; its cause is what it raised, whatever that was."""


class Workshop:
    """Runs tools, and counts those that were left behind by a turn that ended before them.

    A tool is somebody else's code: what it raises is its own failure and is told as `ToolExited`, so that nothing of it
    is ever taken for the runtime's own cancellation, ending or fault.
    """

    def __init__(self) -> None:
        self.abandoned = 0

    async def run(self, tool: Tool, arguments: Mapping[str, Json], key: str) -> Any:  # Any: what the tool returns
        """Run a tool's function: on the loop if it is async, else on a thread. Its context is the turn's."""
        task = asyncio.current_task()
        try:
            named = {**arguments, "key": key} if tool.takes_key else dict(arguments)
            if inspect.iscoroutinefunction(tool.function):
                return await tool.function(**named)
            returned = await self._on_a_thread(lambda: tool.function(**named), tool.name)
            return await returned if isinstance(returned, Awaitable) else returned
        except ToolExited:
            raise
        except BaseException as error:
            if _came_from_outside(error, task):
                raise
            raise ToolExited from error

    async def _on_a_thread(self, work: Callable[[], Any], name: str) -> Any:  # Any: what the tool returns
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Any] = loop.create_future()  # Any: what the tool returns
        context = contextvars.copy_context()

        def settle(value: Any, error: ToolExited | None) -> None:  # Any: what the tool returns
            if result.done():
                if inspect.iscoroutine(value):
                    value.close()
            elif error is None:
                result.set_result(value)
            else:
                result.set_exception(error)

        def run() -> None:
            try:
                value, error = context.run(work), None
            except BaseException as raised:  # noqa: BLE001  # it is raised again where the tool was called
                value, error = None, ToolExited()
                error.__cause__ = raised
            try:
                loop.call_soon_threadsafe(settle, value, error)
            except RuntimeError:
                return  # The loop is closed: nobody is left to hear of it.

        threading.Thread(target=run, name=f"backstay-tool-{name}", daemon=True).start()
        try:
            return await result
        except asyncio.CancelledError:
            self.abandoned += 1
            raise


def _came_from_outside(error: BaseException, task: "asyncio.Task[object] | None") -> bool:
    """Whether a tool on the loop was ended by this, instead of having raised it."""
    match error:
        case asyncio.CancelledError():
            return task is not None and task.cancelling() > 0
        case GeneratorExit():
            return not _runs(task)  # The loop is gone, and what ran on it is thrown away.
        case KeyboardInterrupt():
            return threading.current_thread() is threading.main_thread()
        case _:
            return False


def _runs(task: "asyncio.Task[object] | None") -> bool:
    try:
        return asyncio.current_task() is task
    except RuntimeError:
        return False
