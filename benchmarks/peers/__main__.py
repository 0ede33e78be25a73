"""`python -m benchmarks.peers`: measures Backstay beside its peers and writes docs/benchmarks.md."""

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

import msgspec

from benchmarks.peers.catalog import ENVIRONMENTS, PEERS, ROOT
from benchmarks.peers.driver import FULL, SHORT, chosen, measure
from benchmarks.peers.machine import filesystem_of
from benchmarks.peers.report.report import write_report
from benchmarks.peers.report.results import Results

_IN_MEMORY = {"tmpfs", "ramfs"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the peers that were asked for, and write the report."""
    asked = _parser().parse_args(arguments)
    results = _measured(asked) if asked.raw is None else msgspec.json.decode(asked.raw.read_bytes(), type=Results)
    asked.docs.mkdir(parents=True, exist_ok=True)
    write_report(results, asked.docs)
    print(f"{asked.docs / 'benchmarks.md'} is written; the run took {results.seconds:.0f} s.")


def _measured(asked: argparse.Namespace) -> Results:
    where: Path = asked.directory
    where.mkdir(parents=True, exist_ok=True)
    if filesystem_of(where) in _IN_MEMORY:
        raise SystemExit(f"{where} is in memory, where a sync costs nothing: choose --directory on a disk")
    room = Path(mkdtemp(prefix="run-", dir=where))
    try:
        return measure(SHORT if asked.short else FULL, chosen(asked.only), room, _say)
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description="Measure Backstay beside its peers."
    )
    keys = [peer.key for peer in PEERS]
    parser.add_argument("--short", action="store_true", help="fewer and shorter rounds: less than five minutes")
    parser.add_argument("--only", action="append", metavar="PEER", choices=keys, help="one of: %(choices)s")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", metavar="DIR", help="where the report is written")
    parser.add_argument("--raw", type=Path, metavar="FILE", help="write the report from the raw.json of an earlier run")
    parser.add_argument(
        "--directory", type=Path, default=ENVIRONMENTS, metavar="DIR", help="where the stores lie: on a disk"
    )
    return parser


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
