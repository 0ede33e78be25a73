"""The cost of a chat gateway: until a message is durable, until its answer is sent, and as the chats grow in number."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

import backstay
from backstay import Address, Completed, Store, Text, open_store
from backstay.agents.port import AgentTurn
from backstay.gateways.gateway_options import GatewayOptions
from backstay.gateways.gateway_runner import Gateway
from backstay.model.gateways.arrival import Arrival
from backstay.model.gateways.delivery import PartSent
from backstay.model.gateways.gateway import OpenGateway
from backstay.store.commands import gateway_commands
from benchmarks.gateways.bench_platform import BenchPlatform
from benchmarks.instruments.figure import Figure
from benchmarks.instruments.sample_turns import OWNER, QUESTION
from benchmarks.instruments.scratch_folders import in_memory
from benchmarks.instruments.sqlite_counters import SqliteCounters, counted
from benchmarks.instruments.stopwatch import as_a_server_would, compare

FEW, MANY = 1_000, 100_000
ACTIVE = 1_000
_ROUNDS, _UNITS = 7, 50
_SAMPLE = 20
_ANSWERS = 60
_AGENT = "default"


def figures() -> Iterator[Figure]:
    """Time above the runtime, memory of active chats, and the work for one chat among many."""
    with in_memory() as folder:
        yield as_a_server_would(lambda: _until_durable(folder / "durable.db"))
        yield from asyncio.run(_until_sent(folder))
        yield asyncio.run(_memory(folder / "memory.db"))
        yield from _among_many(folder)


# --- time -----------------------------------------------------------------------------------------------------------


def _until_durable(path: Path) -> Figure:
    with open_store(path) as store:
        proof = _opened(store)
        numbers = iter(range(1 << 30))

        def received() -> None:
            for _ in range(_UNITS):
                _receive(store, proof, next(numbers))

        def submitted() -> None:
            for _ in range(_UNITS):
                store.submit(_chat(next(numbers)), QUESTION, owner=OWNER)

        found = compare(received, submitted, rounds=_ROUNDS, units=_UNITS)
    detail = found.detail("received", "submitted") + ", each the first of its chat"
    return Figure(name="message to durable / submit alone", value=found.ratio, limit=2, detail=detail)


async def _until_sent(folder: Path) -> list[Figure]:
    async with _running(folder / "sent.db") as (_, platform):
        await platform.write("0")
        gateway = median([await platform.write("0") for _ in range(_ANSWERS)])
    async with backstay.open(folder / "alone.db", agent=_answer) as app:
        session = await app.session()
        times = []
        for _ in range(_ANSWERS):
            start = perf_counter()
            await (await session.send(QUESTION)).outcome()
            times.append(perf_counter() - start)
    alone = median(times)
    detail = f"median {gateway * 1000:.2f} ms; from send to outcome {alone * 1000:.2f} ms"
    return [Figure(name="message to first answer sent / turn alone", value=gateway / alone, detail=detail)]


# --- memory ---------------------------------------------------------------------------------------------------------


async def _memory(path: Path) -> Figure:
    async with _running(path) as (_, platform):
        await platform.write("warm")
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        await asyncio.gather(*(platform.write(str(chat)) for chat in range(ACTIVE)))
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
    detail = f"{kept / 1024 / 1024:.1f} MiB with {ACTIVE:,} chats, with what the platform of the benchmark keeps"
    return Figure(name="memory per active chat", value=kept / ACTIVE / 1024, unit="KiB", limit=64, detail=detail)


# --- one chat among many --------------------------------------------------------------------------------------------


def _among_many(folder: Path) -> Iterator[Figure]:
    few, many = _work(folder / "few.db", FEW), _work(folder / "many.db", MANY)
    said = f"{MANY:,} chats {many.statements / _SAMPLE:.1f}, {FEW:,} chats {few.statements / _SAMPLE:.1f}"
    yield Figure(
        name="statements of a chat among many / few", value=many.statements / few.statements, limit=1.01, detail=said
    )
    said = f"{MANY:,} chats {many.log_bytes / _SAMPLE:,.0f}, {FEW:,} chats {few.log_bytes / _SAMPLE:,.0f}"
    yield Figure(
        name="log bytes of a chat among many / few", value=many.log_bytes / few.log_bytes, limit=1.5, detail=said
    )


def _work(path: Path, chats: int) -> SqliteCounters:
    """The gateway's work for some chats, from the message to the receipt, beside this many others."""
    with open_store(path) as store:
        proof = _opened(store)
        for chat in range(chats):
            # Their turns wait for an agent that is not here.
            _receive(store, proof, chat, agent="other")
        store.run(gateway_commands.close_gateway(proof))
    total = SqliteCounters()
    with counted() as counters, open_store(path) as store:
        proof = _at_the_end(store, _opened(store))
        for chat in range(chats, chats + _SAMPLE):
            before = counters.copy()
            _receive(store, proof, chat)
            _add(total, counters.since(before))
            claimed = store.claim([_AGENT])
            assert claimed is not None
            store.finish(claimed, Completed(), bodies=[Text("answer")])
            before = counters.copy()
            proof = _send_answer(store, proof)
            _add(total, counters.since(before))
    return total


def _add(total: SqliteCounters, more: SqliteCounters) -> None:
    total.statements += more.statements
    total.log_bytes += more.log_bytes


def _at_the_end(store: Store, proof: OpenGateway) -> OpenGateway:
    """The gateway has read the feed of the other chats."""
    end = store.run(gateway_commands.ended_turns(None, owner=OWNER))
    return store.run(gateway_commands.mark_due(proof, end))


def _send_answer(store: Store, proof: OpenGateway) -> OpenGateway:
    """Send the answer of the one chat in which a turn has ended."""
    ended = store.run(gateway_commands.ended_turns(proof.feed, owner=OWNER))
    proof = store.run(gateway_commands.mark_due(proof, ended))
    (delivery,) = store.run(gateway_commands.due_deliveries(proof.name, owner=OWNER))
    ending = store.run(gateway_commands.next_ending(delivery.session, delivery.cursor, owner=OWNER))
    assert ending is not None
    store.run(gateway_commands.begin_part(proof, delivery.id, ending.event, 0, low=0, high=6))
    store.run(gateway_commands.finish_part(proof, delivery.id, ending.event, 0, PartSent("1")))
    store.run(gateway_commands.settle(proof, delivery.id, ending.event))
    return proof


# --- what is measured -----------------------------------------------------------------------------------------------


def _opened(store: Store) -> OpenGateway:
    proof = store.run(gateway_commands.open_gateway("bench/1", owner=OWNER))
    assert proof is not None, "nothing else polls"
    return proof


def _chat(number: int) -> Address:
    return Address.chat("bench", "dm", chat=str(number), account="1")


def _receive(store: Store, proof: OpenGateway, number: int, agent: str = _AGENT) -> None:
    arrival = Arrival(
        id=f"{number}/1",
        to=_chat(number),
        destination=f'{{"kind":"dm","chat":"{number}"}}',
        parts=(Text(QUESTION),),
        agent=agent,
    )
    store.run(gateway_commands.receive(proof, arrival, cursor=str(number)))


async def _answer(_: AgentTurn) -> AsyncIterator[Text]:
    yield Text("answer")


@asynccontextmanager
async def _running(path: Path) -> AsyncIterator[tuple[backstay.App, BenchPlatform]]:
    """An app with a gateway that answers everybody."""
    platform = BenchPlatform()
    options = GatewayOptions(allow=frozenset({"*"}), previews=False)
    async with backstay.open(path, agent=_answer) as app:
        running = asyncio.create_task(Gateway(app, platform, options).run())
        try:
            yield app, platform
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
