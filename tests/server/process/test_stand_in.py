"""The stand-in and the workers share a socket: either it answers, or they do."""

import asyncio
import socket

from backstay.config import Settings
from backstay.server.process.readiness import WorkersWaiting
from backstay.server.process.stand_in import StandIn
from backstay.server.process.worker import listen
from tests.server.api_calls import raw_answer

AWAY = WorkersWaiting(code="store_unavailable", reason="The database cannot be reached.")
ASK = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_no_worker_may_serve_while_the_stand_in_accepts_connections() -> None:
    async def two_open_at_once() -> None:
        with listen(Settings(db="unused.db", port=0)) as listener:
            stand_in = StandIn(Settings(db="unused.db"), listener)
            for worker in (0, 1):
                await stand_in.wait(worker, AWAY)
            answer = await asyncio.to_thread(raw_answer, listener.getsockname()[1], ASK)
            assert answer.startswith(b"HTTP/1.1 503 ")

            serving = [asyncio.create_task(stand_in.serve(worker)) for worker in (0, 1)]
            await asyncio.wait(serving, return_when=asyncio.FIRST_COMPLETED)
            await _check_that_nobody_accepts(listener)

            await asyncio.gather(*serving)
            await stand_in.close()

    asyncio.run(two_open_at_once())


def test_a_stand_in_that_is_stopped_at_once_accepts_no_connections() -> None:
    async def open_at_once() -> None:
        with listen(Settings(db="unused.db", port=0)) as listener:
            stand_in = StandIn(Settings(db="unused.db"), listener)
            await stand_in.wait(0, AWAY)
            await stand_in.serve(0)
            await _check_that_nobody_accepts(listener)
            await stand_in.close()

    asyncio.run(open_at_once())


def test_a_client_that_is_connected_when_a_worker_takes_over_gets_an_answer() -> None:
    async def take_over() -> None:
        with listen(Settings(db="unused.db", port=0)) as listener:
            stand_in = StandIn(Settings(db="unused.db"), listener)
            await stand_in.wait(0, AWAY)
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            # A later connection is answered, so this one is accepted.
            await asyncio.to_thread(raw_answer, listener.getsockname()[1], ASK)

            await stand_in.serve(0)
            writer.write(ASK)
            assert (await reader.readline()).startswith(b"HTTP/1.1 503 ")

            writer.close()
            await stand_in.close()

    asyncio.run(take_over())


async def _check_that_nobody_accepts(listener: socket.socket) -> None:
    """A new connection is left to us, although every other listener on this loop had time to accept it."""
    with socket.create_connection(listener.getsockname()):
        for _ in range(20):
            await asyncio.sleep(0)
        listener.setblocking(False)
        accepted, _ = listener.accept()
        accepted.close()
