"""`python -m benchmarks.peers.worker ADAPTER VARIANT [watched]`: drives one peer, as JSON lines on a pipe request.

It runs in the environment of the peer, so it imports the standard library and its adapter only. Answers go to the
original standard output; output of the peer goes to standard error.
"""

import asyncio
import gc
import importlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from itertools import repeat
from pathlib import Path
from statistics import median
from typing import IO, Any, TypeVar

from benchmarks.peers.adapter import Adapter, Unsupported
from benchmarks.peers.workload import content, sqlite_pragmas, workloads

T = TypeVar("T")
Answer = dict[str, object]
Operation = Callable[[], Awaitable[object]]


def main(arguments: list[str]) -> None:
    """Answer commands until the pipe closes."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    name, variant, *watched = arguments
    if watched:
        sqlite_pragmas.watch()
    adapter: Adapter = importlib.import_module(f"benchmarks.peers.adapters.{name}").ADAPTER(variant)
    with asyncio.Runner() as runner:
        worker = Worker(adapter)
        _answer(answers, {"ready": True})
        for line in sys.stdin:
            _answer(answers, runner.run(worker.obey(json.loads(line))))
        runner.run(worker.close())


def _answer(answers: IO[str], answer: Answer) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


class Worker:
    """Carries out commands on one adapter."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._opened = False
        self._serial = 0
        self._process = str(os.getpid())

    async def obey(self, command: dict[str, Any]) -> Answer:
        """Carry one command out; an error is an answer."""
        verb: Callable[..., Awaitable[Answer]] = getattr(self, "_do_" + command.pop("do"))
        try:
            return await verb(**command)
        except Unsupported as reason:
            return {"unsupported": str(reason)}
        except Exception as error:  # noqa: BLE001  # a peer may raise anything, and the report must show it
            traceback.print_exc()
            return {"error": f"{type(error).__name__}: {error}"[:300]}

    async def close(self) -> None:
        if self._opened:
            await self._adapter.close()

    async def _do_open(self, directory: str) -> Answer:
        await self._adapter.open(Path(directory))
        self._opened = True
        return {}

    async def _do_seed(self) -> Answer:
        """Fill a new store with the sessions that the workloads need."""
        seed = self._adapter.seed
        for number in range(workloads.MANY):
            await seed(f"many-{number}", content.turns(f"many-{number}", 1))
        for number in range(workloads.RECENT):
            await seed(f"recent-{number}", content.turns(f"recent-{number}", workloads.RECENT_TURNS))
        for name, turns in workloads.HISTORIES.items():
            await seed(name, content.turns(name, turns))
        return {}

    async def _do_create(self, name: str) -> Answer:
        await self._adapter.seed(name, content.turns("first", 1))
        return {}

    async def _do_record(self, name: str, count: int) -> Answer:
        for _ in range(count):
            await self._adapter.record(name, self._turn())
        return {}

    async def _do_pragmas(self) -> Answer:
        return {"synchronous": sqlite_pragmas.levels_seen()}

    async def _do_read(self, name: str) -> Answer:
        return {"tags": [content.tag_of(text) for text in await self._adapter.load(name)]}

    async def _do_run(self, workload: str, count: int, round: int) -> Answer:
        """Time a workload: seconds of the median of `count` operations."""
        if round == 0:
            gc.collect()
            gc.freeze()
        return {"seconds": await getattr(self, "_run_" + workload)(count, round)}

    async def _run_record_100(self, count: int, round: int) -> float:
        return await self._record(f"recent-{round % workloads.RECENT}", count)

    async def _run_record_1000(self, count: int, round: int) -> float:
        return await self._record("long-1000", count)

    async def _run_record_10000(self, count: int, round: int) -> float:
        return await self._record("long-10000", count)

    async def _record(self, name: str, count: int) -> float:
        turns = [self._turn() for _ in range(count)]
        return await _median(partial(self._adapter.record, name, turn) for turn in turns)

    async def _run_tool_step(self, count: int, round: int) -> float:
        call, result = (content.text(f"tool/{role}", content.RESULT_BYTES) for role in ("call", "result"))
        return await self._in_turn(partial(self._adapter.tool_step, "steps", call, result), count)

    async def _run_delta(self, count: int, round: int) -> float:
        delta = content.text("delta", content.DELTA_BYTES)
        return await self._in_turn(partial(self._adapter.delta, "steps", delta), count)

    async def _in_turn(self, operation: Operation, count: int) -> float:
        await self._adapter.begin_turn("steps")
        try:
            return await _median(repeat(operation, count))
        finally:
            await self._adapter.end_turn("steps")

    async def _run_load_1000(self, count: int, round: int) -> float:
        return await _checked_read(partial(self._adapter.load, "load"), count, lambda texts: len(texts) == 1_000)

    async def _run_last_20(self, count: int, round: int) -> float:
        read = partial(self._adapter.last, "load", workloads.LAST)
        return await _checked_read(read, count, lambda texts: len(texts) == workloads.LAST)

    async def _run_resolve(self, count: int, round: int) -> float:
        return await _checked_read(partial(self._adapter.resolve, "many-700"), count, lambda found: found is not None)

    async def _run_newest(self, count: int, round: int) -> float:
        read = partial(self._adapter.newest, workloads.NEWEST)
        return await _checked_read(read, count, lambda listed: listed == workloads.NEWEST)

    async def _run_create(self, count: int, round: int) -> float:
        first = content.turn("first")
        names = [self._name("new") for _ in range(count)]
        return await _median(partial(self._adapter.create_and_record, name, first) for name in names)

    async def _run_fork(self, count: int, round: int) -> float:
        names = [self._name("fork") for _ in range(count)]
        return await _median(partial(self._adapter.fork, "fork", name) for name in names)

    async def _run_undo(self, count: int, round: int) -> float:
        times = []
        for _ in range(count):
            await self._adapter.record("undo", self._turn())
            times.append(await _median([partial(self._adapter.undo, "undo")]))
        return median(times)

    async def _run_crowd(self, count: int, round: int) -> float:
        names = [f"many-{number}" for number in range(workloads.CROWD)]
        each = max(1, count // workloads.CROWD)
        turns = [[self._turn() for _ in range(each)] for _ in names]
        start = time.perf_counter()
        match self._adapter.callers:
            case "tasks":
                await asyncio.gather(*self._clients(names, turns))
            case "threads":
                _on_threads(self._clients(names, turns))
            case "one":
                for client in self._clients(names, turns):
                    await client
            case "group":
                for together in zip(*turns, strict=True):
                    await self._adapter.record_group(names, together)
        return (time.perf_counter() - start) / (each * len(names))

    def _clients(self, names: list[str], turns: list[list[list[content.Said]]]) -> list[Coroutine[Any, Any, None]]:
        return [self._client(name, mine) for name, mine in zip(names, turns, strict=True)]

    async def _client(self, name: str, turns: list[list[content.Said]]) -> None:
        for turn in turns:
            await self._adapter.record(name, turn)

    async def _do_contend(self, name: str, tag: str, start: float, seconds: float) -> Answer:
        """Record turns on a session that other processes write as well."""
        acknowledged, waits, rejected = [], [], {}
        await asyncio.sleep(start - time.monotonic())
        number, now = 0, time.monotonic()
        while now < start + seconds:
            turn = f"{tag}.{number}"
            number += 1
            try:
                await self._adapter.record(name, content.turn(turn))
            except Exception as error:  # noqa: BLE001  # every way to reject a write counts
                rejected[turn] = type(error).__name__
                await self._adapter.refresh(name)
            else:
                acknowledged.append(turn)
                waits.append(time.monotonic() - now)
            now = time.monotonic()
        return {"acknowledged": acknowledged, "waits": waits, "rejected": rejected, "seconds": now - start}

    def _turn(self) -> list[content.Said]:
        return content.turn(self._name("turn"))

    def _name(self, kind: str) -> str:
        self._serial += 1
        return f"{kind}-{self._process}-{self._serial}"


async def _median(operations: Iterable[Operation]) -> float:
    """The seconds of the median operation: a busy machine interrupts some of them for long."""
    times = []
    for operation in operations:
        start = time.perf_counter()
        await operation()
        times.append(time.perf_counter() - start)
    return median(times)


async def _checked_read(read: Callable[[], Awaitable[T]], count: int, is_right: Callable[[T], bool]) -> float:
    """Time a read, after a check that it reads what it should."""
    found = await read()
    if not is_right(found):
        raise RuntimeError(f"the read found something else: {str(found)[:80]}")
    return await _median(repeat(read, count))


def _on_threads(clients: list[Coroutine[Any, Any, None]]) -> None:
    failures: list[BaseException] = []

    def complete(client: Coroutine[Any, Any, None]) -> None:
        try:
            client.send(None)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001  # handed to the caller below
            failures.append(error)
        else:
            failures.append(RuntimeError("an adapter with a blocking interface suspended"))

    threads = [threading.Thread(target=complete, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


if __name__ == "__main__":
    main(sys.argv[1:])
