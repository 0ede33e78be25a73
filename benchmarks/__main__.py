"""`python -m benchmarks`: measures and prints a table. A figure over its limit is not an error."""

import argparse
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import apsw
import msgspec

from benchmarks.gateways import gateway_cost
from benchmarks.instruments.figure import Figure, heading, rule
from benchmarks.postgres import postgres_turns
from benchmarks.runtime import live_agents, turn_outcome, turn_overhead
from benchmarks.server import http_server, web_ui
from benchmarks.sqlite import disk_size, growth, log_size, message_reads, search, throughput, turn_cost

BENCHMARKS: dict[str, Callable[[], Iterator[Figure]]] = {
    "turn": turn_cost.figures,
    "growth": growth.figures,
    "reads": message_reads.figures,
    "size": disk_size.figures,
    "search": search.figures,
    "throughput": throughput.figures,
    "log": log_size.figures,
    "outcome": turn_outcome.figures,
    "runtime": turn_overhead.figures,
    "live": live_agents.figures,
    "postgres": postgres_turns.figures,
    "server": http_server.figures,
    "page": web_ui.figures,
    "gateways": gateway_cost.figures,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the named benchmarks and print their figures."""
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
