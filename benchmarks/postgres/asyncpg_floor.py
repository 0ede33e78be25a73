"""The floor on PostgreSQL: asyncpg records the same turns in hand-written SQL. It runs in an environment of its own.

A turn moves the row of its session and inserts two messages, in one synced transaction: no turn, no event, no lease, no
mark for a lost commit. It is a program that imports nothing of the project. Arguments: the URL, the number of clients,
the number of connections. Each line of its input is a number of turns; each line of its output has the seconds and the
processor seconds of all clients for these turns.
"""

import asyncio
import sys
import time

import asyncpg  # type: ignore[import-not-found]  # only in its own environment

_SCHEMA = """
CREATE TABLE IF NOT EXISTS floor_sessions (
    id bigint PRIMARY KEY, name text NOT NULL UNIQUE, length bigint NOT NULL, active bigint NOT NULL);
CREATE TABLE IF NOT EXISTS floor_messages (
    session bigint NOT NULL, position bigint NOT NULL, body text NOT NULL, PRIMARY KEY (session, position));
"""
_CREATE = "INSERT INTO floor_sessions VALUES ($1, $2, 0, 0)"
_GROW = "UPDATE floor_sessions SET length = length + 2, active = $2 WHERE name = $1 RETURNING id, length"
_INSERT = "INSERT INTO floor_messages VALUES ($1, $2, $3)"


async def record(connection: asyncpg.Connection, name: str, bodies: list[str]) -> None:
    """One turn."""
    async with connection.transaction():
        row = await connection.fetchrow(_GROW, name, time.time_ns())
        first = row["length"] - len(bodies)
        await connection.executemany(_INSERT, [(row["id"], first + index, body) for index, body in enumerate(bodies)])


async def main(url: str, clients: int, connections: int) -> None:
    """Record turns until the input ends."""
    bodies = ["q" * 500, "a" * 1_500]
    # A queue of connections, because a pool of asyncpg resets a connection after each use, which is one more statement.
    free: asyncio.Queue[asyncpg.Connection] = asyncio.Queue()
    for _ in range(connections):
        free.put_nowait(await asyncpg.connect(url))

    async def client(index: int, turns: int) -> None:
        for _ in range(turns):
            connection = await free.get()
            await record(connection, f"session {index}", bodies)
            free.put_nowait(connection)

    connection = await asyncpg.connect(url)
    await connection.execute(_SCHEMA)
    await connection.executemany(_CREATE, [(index, f"session {index}") for index in range(clients)])
    while line := await asyncio.to_thread(sys.stdin.readline):
        spent, start = time.process_time(), time.perf_counter()
        await asyncio.gather(*(client(index, int(line)) for index in range(clients)))
        print(time.perf_counter() - start, time.process_time() - spent, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
