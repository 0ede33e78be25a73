"""The tool runner. Each blocking tool gets a thread of its own, so that a hanging tool delays no other."""

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Mapping

from backstay.agents.tools import Tool
from backstay.concurrency.background_thread import BackgroundThread
from backstay.concurrency.ctrl_c import is_ctrl_c
from backstay.model.content import Json
from backstay.model.failure_reasons import Exited


class ToolExited(Exited):
    """A tool ended without a result; `__cause__` is the exception that it raised."""


class ToolRunner:
    """Runs tools, and counts those that were abandoned because their turn ended first.

    A tool is foreign code. Its exceptions are raised as `ToolExited`, so that none of them is mistaken for a
    cancellation, an exit or a fault of the runtime.
    """

    def __init__(self) -> None:
        self.abandoned = 0

    async def run(self, tool: Tool, arguments: Mapping[str, Json], key: str) -> object:
        """Run a tool's function in the turn's context: on the event loop if it is async, otherwise on a thread."""
        task = asyncio.current_task()
        try:
            named = {**arguments, "key": key} if tool.takes_key else dict(arguments)
            if inspect.iscoroutinefunction(tool.function):
                return await tool.function(**named)
            returned = await self._on_a_thread(lambda: tool.function(**named))
            return await returned if isinstance(returned, Awaitable) else returned
        except ToolExited:
            raise
        except BaseException as error:
            if _came_from_outside(error, task):
                raise
            raise ToolExited from error

    async def _on_a_thread(self, work: Callable[[], object]) -> object:
        loop = asyncio.get_running_loop()
        result: asyncio.Future[object] = loop.create_future()
        context = contextvars.copy_context()

        def settle(value: object, error: ToolExited | None) -> None:
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
                return  # The event loop is closed: nothing waits for the result.

        def on_thread_lost() -> None:
            error = ToolExited()
            error.__cause__ = thread.lost()
            settle(None, error)

        thread = BackgroundThread(run)
        watch = thread.watch(on_thread_lost)
        try:
            return await result
        except asyncio.CancelledError:
            self.abandoned += 1
            raise
        finally:
            watch.cancel()


def _came_from_outside(error: BaseException, task: "asyncio.Task[object] | None") -> bool:
    """Whether this exception ended an async tool from outside, instead of being raised by it."""
    match error:
        case asyncio.CancelledError():
            return task is not None and task.cancelling() > 0
        case GeneratorExit():
            return not _runs(task)  # The event loop is closed, and its coroutines are discarded.
        case KeyboardInterrupt():
            return is_ctrl_c(error)
        case _:
            return False


def _runs(task: "asyncio.Task[object] | None") -> bool:
    try:
        return asyncio.current_task() is task
    except RuntimeError:
        return False
