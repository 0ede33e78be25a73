"""ACP on standard streams, for programs of tests: one JSON-RPC message per line.

The official library builds hundreds of models when it is imported, which takes ten times as long as a turn.
`acp_library_program.py` is a program that uses it.
"""

import asyncio
import itertools
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Message = dict[str, Any]  # Any: JSON
Handler = Callable[[Message], Awaitable[Any]]

_LONGEST = 1 << 26


class RequestRefused(Exception):
    """The other side answers with an error, or this side does."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message, "data": data}


class Connection:
    """Answers requests with handlers, by the name of the method, and sends requests of its own."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}

    def notify(self, method: str, params: Message) -> None:
        """Send a message that has no answer."""
        self._send({"method": method, "params": params})

    async def request(self, method: str, params: Message) -> Any:  # Any: JSON
        """Send a request; its result.

        Raises:
            RequestRefused: The answer is an error.
        """
        number = next(self._numbers)
        self._asked[number] = asyncio.get_running_loop().create_future()
        self._send({"id": number, "method": method, "params": params})
        return await self._asked[number]

    async def run(self) -> None:
        """Answer until standard input ends."""
        reader = asyncio.StreamReader(limit=_LONGEST)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        tasks = set()
        while line := await reader.readline():
            message = json.loads(line)
            if "method" in message:
                tasks.add(asyncio.create_task(self._answer(message)))
            else:
                self._settle(message)

    def _settle(self, answer: Message) -> None:
        waiting = self._asked.pop(answer["id"])
        if "error" in answer:
            waiting.set_exception(RequestRefused(answer["error"]["code"], answer["error"]["message"]))
        else:
            waiting.set_result(answer["result"])

    async def _answer(self, message: Message) -> None:
        try:
            answer = {"result": await self._handlers[message["method"]](message["params"])}
        except RequestRefused as refused:
            answer = {"error": refused.error}
        if "id" in message:
            self._send({"id": message["id"], **answer})

    def _send(self, message: Message) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()
