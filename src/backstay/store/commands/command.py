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

    Attributes:
        name: The name of the verb, for metrics.
        owner: The owner whose data it concerns; None: all owners.
        verb: The function of a transaction.
        durable: Whether it survives power loss; otherwise it survives only the death of the process.
        exclusive: Whether it shares its transaction with no other write.
        read_first: Whether it often has nothing to change: then nothing is written, and the version stays.
        registers: Whether it may take a lease: then the worker is registered first, so that other processes see that
            it is alive.
        wakes: Whether it appends events: then the followers of the session are woken.
        precheck: A statement that reads the result of a verb that has nothing to change; None if the verb must run.
    """

    name: str
    owner: str | None
    verb: Callable[[Transaction], T_co]
    durable: bool = True
    exclusive: bool = False
    read_first: bool = False
    registers: bool = False
    wakes: bool = True
    precheck: Callable[[Transaction], T_co | None] | None = None


class Read(msgspec.Struct, Generic[T_co], frozen=True, kw_only=True):
    """A verb that only reads, and returns a `T_co`.

    Attributes:
        name: The name of the verb, for metrics.
        owner: The owner whose data it concerns; None: all owners.
        verb: The function of a transaction.
        snapshot: Whether it needs one consistent snapshot; otherwise it is a single statement.
        long: Whether it never runs on the thread of an event loop; others may, within the engine's budget.
    """

    name: str
    owner: str | None
    verb: Callable[[Transaction], T_co]
    snapshot: bool = True
    long: bool = False
