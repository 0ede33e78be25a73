"""The operations of a store as typed values: `store.run(commands.rename(…))`, `await app.run(commands.reorder(…))`."""

from backstay.store import commands
from backstay.store.commands import *  # noqa: F403  # the same names, under the public module

__all__ = commands.__all__  # type checkers read it there
