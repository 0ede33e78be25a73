"""Rows by column name: a named statement declares its columns, and each row becomes a value with those fields.

The names are compared once, when a module declares its queries. If a column is added, renamed or moved in a `.sql`
file, the program stops at import, and no value gets into the wrong field.
"""

from collections.abc import Callable, Iterable
from inspect import Parameter as Argument
from inspect import signature
from itertools import starmap
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from backstay.model.ids import WorkerId
from backstay.store.engine import Parameter, Row, Transaction
from backstay.store.queries import columns_of, shared_statement

T = TypeVar("T")


class Rows(Generic[T]):
    """A named statement whose rows become values of one type: each column is the argument with its name.

    Raises:
        LookupError: The columns of the statement are not the arguments of the type.
    """

    __slots__ = ("_query", "_reorder", "_shape")

    def __init__(self, query: str, shape: Callable[..., T]) -> None:
        columns, arguments = columns_of(shared_statement(query)), signature(shape).parameters
        if sorted(columns) != sorted(arguments):
            raise LookupError(f"statement {query} returns {columns}, but {shape} takes {tuple(arguments)}")
        self._query, self._shape = query, shape
        # Puts the columns into the order of the arguments. Most rows have it already, which costs nothing per row.
        self._reorder: Callable[[Row], Row] | None = None
        if any(argument.kind is Argument.KEYWORD_ONLY for argument in arguments.values()):
            self._shape = _by_keyword(shape, columns)
        elif columns != tuple(arguments):
            self._reorder = itemgetter(*map(columns.index, arguments))

    def one(self, tx: Transaction, /, **parameters: Parameter) -> T | None:
        """The first row, or None."""
        row = tx.one(self._query, **parameters)
        if row is None:
            return None
        return self._shape(*row) if self._reorder is None else self._shape(*self._reorder(row))

    def all(self, tx: Transaction, /, **parameters: Parameter) -> list[T]:
        """All rows."""
        rows: Iterable[Row] = tx.all(self._query, **parameters)
        if self._reorder is not None:
            rows = map(self._reorder, rows)
        # A thousand messages pass here at once: one call per row, which the interpreter makes itself.
        return [*starmap(self._shape, rows)]


class WorkerRow(NamedTuple):
    """A registered worker."""

    id: WorkerId
    host: str
    pid: int
    boot_id: str
    started_at: int


WORKERS = Rows("workers", WorkerRow)


def value(tx: Transaction, query: str, /, **parameters: Parameter) -> Any:  # Any: the type of the column
    """The only column of the first row, or None without a row."""
    row = tx.one(query, **parameters)
    if row is None:
        return None
    (found,) = row
    return found


def values(tx: Transaction, query: str, /, **parameters: Parameter) -> list[Any]:  # Any: the type of the column
    """The only column of every row."""
    return [found for (found,) in tx.all(query, **parameters)]


def _by_keyword(shape: Callable[..., T], columns: tuple[str, ...]) -> Callable[..., T]:
    return lambda *row: shape(**dict(zip(columns, row, strict=True)))
