"""The page about the peers, from results made up here."""

from pathlib import Path

import msgspec
import pytest

from benchmarks.peers.machine import Machine
from benchmarks.peers.report.ratios import Pair
from benchmarks.peers.report.report import charts, page, write_report
from benchmarks.peers.report.results import Cell, Contender, ContentionCell, Results
from benchmarks.peers.workload.anomalies import Anomalies
from benchmarks.peers.workload.contention import Burst
from benchmarks.peers.workload.durability import Durability
from benchmarks.peers.workload.workloads import WORKLOADS

SYNCED = Durability(syncs=1.0, journal="WAL", synchronous="FULL")
UNSYNCED = Durability(syncs=0.0, journal="", synchronous="")


def _contender(key: str, durability: Durability) -> Contender:
    return Contender(key=key, title=key.title(), version="1.2", about="How it is measured.", durability=durability)


def _cell(peer: str, *seconds: float, reason: str = "") -> Cell:
    return Cell(peer=peer, pairs=[Pair(floor=1.0, peer=one) for one in seconds], reason=reason)


def _contention(peer: str, rate: float, lost: int = 0) -> ContentionCell:
    return ContentionCell(
        peer=peer,
        bursts=[Burst(rate=rate, median_wait=0.001, p99_wait=0.002)],
        floors=[Burst(rate=100.0, median_wait=0.001, p99_wait=0.001)],
        anomalies=Anomalies(acknowledged=100, lost=lost),
    )


def _results(**cells: list[Cell]) -> Results:
    return Results(
        day="2026-01-01",
        short=True,
        seconds=61.0,
        machine=Machine(
            cores=2,
            processor="chip",
            system="Linux 6",
            filesystem="ext4",
            sync_median=0.0002,
            sync_p95=0.0004,
            python="3.11.7",
            sqlite="3.54.1",
            load=0.5,
        ),
        contenders=[
            _contender("floor", SYNCED),
            _contender("backstay", SYNCED),
            _contender("careful", SYNCED),
            _contender("hasty", UNSYNCED),
        ],
        cells={workload.key: cells.get(workload.key, []) for workload in WORKLOADS},
        contention=[
            _contention("backstay", 80.0),
            _contention("hasty", 120.0, lost=7),
            ContentionCell(peer="careful", reason="It ended."),
        ],
        skipped={"Gone": "no matching\n distribution"},
    )


def _line(results: Results, start: str) -> str:
    (line,) = [line for line in page(results).splitlines() if line.startswith(start)]
    return line


def test_a_cell_shows_the_median_and_the_extremes() -> None:
    results = _results(undo=[_cell("backstay", 2.0, 4.0, 1.0), _cell("careful", 10.0)])
    assert "| undo the last of 500 turns | 0.10 (0.10–0.10) | — |" in page(results)


def test_the_summary_names_the_fastest_peer_that_syncs() -> None:
    results = _results(undo=[_cell("backstay", 2.0, 4.0, 1.0), _cell("careful", 10.0), _cell("hasty", 0.1)])
    assert "| undo the last of 500 turns | **0.50** (0.25–1.0) | 0.10 (0.10–0.10) Careful |" in page(results)


def test_a_peer_that_is_ahead_is_listed_with_the_reason() -> None:
    results = _results(undo=[_cell("backstay", 2.0), _cell("careful", 1.0)])
    text = page(results)
    assert "**undo the last of 500 turns** (Backstay 0.50)" in text
    assert "  - Careful 1.0." in text


def test_a_peer_that_is_ahead_without_syncs_is_marked() -> None:
    assert "It does not sync" in _line(_results(undo=[_cell("backstay", 2.0), _cell("hasty", 1.0)]), "  - Hasty 1.0")


def test_a_chart_of_writes_marks_a_peer_that_does_not_sync() -> None:
    drawn = charts(_results(undo=[_cell("hasty", 1.0)], load_1000=[_cell("hasty", 1.0)]))
    assert "Hasty (no sync)" in drawn["undo"]
    assert "Hasty (no sync)" not in drawn["load_1000"]


def test_a_read_needs_no_sync_to_be_ahead() -> None:
    results = _results(resolve=[_cell("backstay", 2.0), _cell("hasty", 1.0)])
    assert "sync" not in _line(results, "  - Hasty 1.0")


def test_a_slower_peer_is_not_listed_as_ahead() -> None:
    results = _results(undo=[_cell("backstay", 1.0), _cell("careful", 2.0)])
    assert "(Backstay 1.0)" not in page(results)


def test_the_goals_that_are_written_by_hand_are_part_of_the_page() -> None:
    assert "## Goals, and what stands in the way\n" in page(_results())


def test_each_dash_is_explained() -> None:
    results = _results(undo=[_cell("backstay", 1.0), _cell("careful", reason="It has no undo.")])
    assert "- undo the last of 500 turns: Careful. It has no undo." in page(results)


def test_a_skipped_peer_is_named_with_the_reason() -> None:
    assert "- Gone was left out of this run. no matching distribution" in page(_results())


def test_lost_turns_are_in_the_table_and_in_the_chart() -> None:
    results = _results()
    assert _line(results, "| Hasty | 1.2").split("|")[5].strip() == "7"
    assert "7 lost" in charts(results)["contention"]


def test_a_peer_that_acknowledged_nothing_has_no_speed() -> None:
    silent = Burst(rate=0.0, median_wait=None, p99_wait=None)
    cell = msgspec.structs.replace(
        _contention("careful", 1.0),
        bursts=[silent],
        anomalies=Anomalies(acknowledged=0),
        rejections={"Stale": 9},
    )
    results = msgspec.structs.replace(_results(), contention=[cell])
    assert _line(results, "| Careful | — | — | 0").endswith("| 9 (Stale) |")


def test_a_speed_with_lost_turns_is_marked() -> None:
    assert "Of its acknowledged turns, 7 lost." in _line(_results(), "  - Hasty 1.2")


@pytest.mark.parametrize(
    ("durability", "survives"),
    [
        (SYNCED, True),
        (UNSYNCED, False),
        (Durability(syncs=None, journal="WAL", synchronous="NORMAL"), False),
        (Durability(syncs=None, journal="WAL", synchronous="FULL"), True),
        (Durability(syncs=None, journal="", synchronous=""), None),
    ],
)
def test_durability_is_judged_by_syncs_then_by_the_setting(durability: Durability, survives: bool | None) -> None:
    assert durability.survives_power_loss is survives


def test_each_linked_picture_and_file_of_the_report_is_written(tmp_path: Path) -> None:
    results = _results(undo=[_cell("backstay", 1.0)])
    write_report(results, tmp_path)
    text = (tmp_path / "benchmarks.md").read_text()
    linked = {part.partition(")")[0] for part in text.split("](")[1:]}
    assert len(linked) == len(WORKLOADS) + 2
    assert all((tmp_path / name).is_file() for name in linked)


def test_the_raw_figures_can_be_read_again(tmp_path: Path) -> None:
    write_report(_results(undo=[_cell("backstay", 2.0)]), tmp_path)
    read = msgspec.json.decode((tmp_path / "benchmarks" / "raw.json").read_bytes(), type=Results)
    assert read.cells["undo"][0].pairs == [Pair(floor=1.0, peer=2.0)]


def test_a_busy_machine_is_named_as_such() -> None:
    results = _results()
    busy = msgspec.structs.replace(results, machine=msgspec.structs.replace(results.machine, load=7.5))
    assert "load average 7.5 on 2 cores" in page(busy).partition("##")[0]
    assert "load average" not in page(results).partition("##")[0]
