"""`python -m benchmarks`: measures, prints a table, and never fails because a figure is over its limit."""

import argparse
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import apsw
import msgspec

from benchmarks import growth, live, loading, log, page, postgres, runtime, server, size, throughput, turn
from benchmarks.figure import Figure, heading, rule

BENCHMARKS: dict[str, Callable[[], Iterator[Figure]]] = {
    "turn": turn.figures,
    "growth": growth.figures,
    "loading": loading.figures,
    "size": size.figures,
    "throughput": throughput.figures,
    "log": log.figures,
    "runtime": runtime.figures,
    "live": live.figures,
    "postgres": postgres.figures,
    "server": server.figures,
    "page": page.figures,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what was asked for and print it."""
    asked = _parser().parse_args(arguments)
    print(f"Python {platform.python_version()}, apsw {apsw.apsw_version()}, SQLite {apsw.sqlite_lib_version()}\n")
    print(heading(), rule(), sep="\n")
    found = {name: _measure(name) for name in asked.only or BENCHMARKS}
    _conclude([figure for figures in found.values() for figure in figures])
    if asked.json is not None:
        asked.json.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Backstay against raw drivers.")
    parser.add_argument("--only", action="append", metavar="NAME", choices=list(BENCHMARKS), help="one of: %(choices)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    return parser


def _measure(name: str) -> list[Figure]:
    start = time.perf_counter()
    print(f"{name}: {(sys.modules[BENCHMARKS[name].__module__].__doc__ or '').splitlines()[0]}")
    figures = []
    for figure in BENCHMARKS[name]():
        print(figure.line(), flush=True)
        figures.append(figure)
    print(f"  ({time.perf_counter() - start:.0f} s)\n", flush=True)
    return figures


def _conclude(figures: Sequence[Figure]) -> None:
    limited = [figure for figure in figures if figure.verdict]
    over = [figure for figure in limited if figure.verdict == "OVER"]
    print(f"{len(limited) - len(over)} of {len(limited)} figures keep their limit.")
    for figure in over:
        print(f"OVER: {figure.name}: {figure.value:.3g}, limit {figure.limit:g}")


if __name__ == "__main__":
    main()
