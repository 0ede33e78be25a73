"""A command: one verb of the store, checked and ready to run, as a typed value.

A command is independent of the engine, and of how its caller waits: `Store.run` blocks, `AsyncStore.run` is awaited.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from backstay.store.engine import Transaction

T_co = TypeVar("T_co", covariant=True)


class Write(msgspec.Struct, Generic[T_co], frozen=True, kw_only=True):
    """A verb that is one write transaction, and returns a `T_co`.

    `durable` writes survive power loss, others only the death of the process. An `alone` write shares its transaction
    with no other. With `look_first` the verb often has nothing to change; then nothing is written and the version
    stays. With `registers` the verb may take a lease, so the worker must be registered first: other
    processes must see that it is alive. With `wakes` the verb appends events, so followers of the session are woken.
    """

    name: str
    owner: str | None
    verb: Callable[[Transaction], T_co]
    durable: bool = True
    alone: bool = False
    look_first: bool = False
    registers: bool = False
    wakes: bool = True


class Read(msgspec.Struct, Generic[T_co], frozen=True, kw_only=True):
    """A verb that only reads, and returns a `T_co`.

    It reads one consistent `snapshot`; without, it is a single statement, which is consistent by itself.
    """

    name: str
    owner: str | None
    verb: Callable[[Transaction], T_co]
    snapshot: bool = True
