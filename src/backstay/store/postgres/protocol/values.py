"""Values in the protocol: parameters become bytes, and results become rows."""

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap, PyFormat, Transformer
from psycopg.pq import Format
from psycopg.pq.abc import PGresult
from psycopg.types.numeric import Int8Dumper

from backstay.store.engine import Row

_AUTO = (PyFormat.AUTO,)


class _Encoding:
    """The conversions of every connection. Without a connection they write UTF-8, as all our connections do."""

    connection = None

    def __init__(self) -> None:
        self.adapters = AdaptersMap(psycopg.adapters)
        register_widths(self.adapters)


def register_widths(adapters: AdaptersMap) -> None:
    """Send every integer in one width: a statement is prepared once for each combination of parameter types."""
    adapters.register_dumper(int, Int8Dumper)
    adapters.register_dumper(bool, Int8Dumper)


_ENCODING = _Encoding()


class Converter:
    """Converts values for one connection. It keeps the converters of the types that it has met."""

    __slots__ = ("_transformer",)

    def __init__(self) -> None:
        self._transformer = Transformer(_ENCODING)

    def encode(self, values: Sequence[Any]) -> tuple[Sequence[Any], tuple[int, ...], list[Format]]:  # Any: the driver's
        """The values as bytes, the types that they are sent as, and their formats."""
        transformer = self._transformer
        encoded = transformer.dump_sequence(values, _AUTO * len(values))
        return encoded, transformer.types or (), transformer.formats or []

    def rows(self, result: PGresult) -> list[Row]:
        """All rows of a result."""
        transformer = self._transformer
        transformer.set_pgresult(result)
        return transformer.load_rows(0, result.ntuples, tuple)
