"""FTS5 functions that describe a match by the numbers that BM25 is made of."""

import apsw

_LENGTH_BITS = 32


def add_ranking_functions(connection: apsw.Connection) -> None:
    """Let queries of this connection call `match_shape` and `usual_length`."""
    connection.register_fts5_function("match_shape", _match_shape)
    connection.register_fts5_function("usual_length", _usual_length)


def _match_shape(match: apsw.FTS5ExtensionApi, *_: object) -> int:
    """How often the terms are in the text, and its length in words, in one number."""
    return (match.inst_count << _LENGTH_BITS) | match.column_size(-1)


def _usual_length(match: apsw.FTS5ExtensionApi, *_: object) -> float:
    """The mean length of all texts of the index, in words."""
    return match.column_total_size(-1) / match.row_count
