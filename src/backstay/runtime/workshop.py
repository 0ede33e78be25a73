"""The workshop: where tools run. Each that blocks gets a thread of its own, so that one that hangs holds up nobody."""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any

from backstay.agents.tools import Tool
from backstay.model.content import Json


class ToolExited(Exception):
    """A tool wanted to end the program; its cause says how."""


class Workshop:
    """Runs tools, and counts those that were left behind by a turn that ended before them."""

    def __init__(self) -> None:
        self.abandoned = 0

    async def run(self, tool: Tool, arguments: Mapping[str, Json], key: str) -> Any:  # Any: what the tool returns
        """Run a tool's function: on the loop if it is async, else on a thread. Its context is the turn's."""
        named = {**arguments, "key": key} if tool.takes_key else dict(arguments)
        try:
            if inspect.iscoroutinefunction(tool.function):
                return await tool.function(**named)
            return await self._on_a_thread(lambda: tool.function(**named), tool.name)
        except SystemExit as error:
            # It would end the whole program, and every other turn with it.
            raise ToolExited from error

    async def _on_a_thread(self, work: Callable[[], Any], name: str) -> Any:  # Any: what the tool returns
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Any] = loop.create_future()  # Any: what the tool returns
        context = contextvars.copy_context()

        def settle(value: Any, error: BaseException | None) -> None:  # Any: what the tool returns
            if result.done():
                return
            if error is None:
                result.set_result(value)
            else:
                result.set_exception(error)

        def run() -> None:
            try:
                value, error = context.run(work), None
            except BaseException as raised:  # noqa: BLE001  # it is raised again where the tool was called
                value, error = None, raised
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
