"""docs/benchmarks.md and its charts from the results of a run. Pure but for `write_report`."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks.peers.catalog import BACKSTAY, FLOOR
from benchmarks.peers.report import reasons
from benchmarks.peers.report.ratios import Spread, shown
from benchmarks.peers.report.results import Cell, Contender, ContentionCell, Results
from benchmarks.peers.report.svg import Bar, chart, ratio_text
from benchmarks.peers.workload.anomalies import Anomalies
from benchmarks.peers.workload.durability import Durability
from benchmarks.peers.workload.workloads import CROWD_KEY, WORKLOADS

CONTENTION = "contention"
CONTENTION_TITLE = "4 processes, one session: acknowledged turns"
_CONTENTION_TERMS = """\
Four processes record turns on one session at once; a fifth process then reads the history. *Lost*: an acknowledged
turn is not in the history. *Torn*: one of its messages is missing. *Doubled*: a message is there twice. *Split*:
another turn stands between its messages. *Rejected*: the write raised an error."""
_DURABILITY_TERMS = """\
Whether an acknowledged turn survives a power loss. Syncs are counted by `strace` where it is installed; the journal
mode comes from the header of the database; `synchronous` from the connections that the peer opened."""
# Written by hand: the goals, and the profiles that show what stands in the way.
_GOALS = Path(__file__).with_name("goals.md")
CAPTION = "Speed relative to hand-written SQL on the same disk: higher is better. Dot: median; line: all rounds."


def write_report(results: Results, docs: Path) -> None:
    """Write the page, one chart per workload, and the raw figures."""
    folder = docs / "benchmarks"
    folder.mkdir(exist_ok=True)
    for name, drawing in charts(results).items():
        (folder / f"{name}.svg").write_text(drawing, "utf-8")
    raw = msgspec.json.format(msgspec.json.encode(_rounded(results)), indent=1)
    (folder / "raw.json").write_bytes(raw + b"\n")
    (docs / "benchmarks.md").write_text(page(results), "utf-8")


def charts(results: Results) -> dict[str, str]:
    """One SVG per workload, by file name."""
    titles, labels = _titles(results), _chart_labels(results)
    drawn = {
        workload.key: chart(
            workload.title,
            CAPTION,
            [
                Bar(
                    label=(titles if workload.key in _READS else labels)[cell.peer],
                    spread=cell.spread,
                    text=ratio_text(cell.spread),
                    ours=cell.peer == BACKSTAY.key,
                )
                for cell in results.cells[workload.key]
            ],
        )
        for workload in WORKLOADS
        if workload.key in results.cells
    }
    drawn[CONTENTION] = chart(CONTENTION_TITLE, CAPTION, [_contention_bar(cell, labels) for cell in results.contention])
    return drawn


def _chart_labels(results: Results) -> dict[str, str]:
    """The titles; a chart of writes marks the peers that do not sync."""
    return {one.key: f"{one.title} (no sync)" if _is_unsynced(one) else one.title for one in results.contenders}


def _is_unsynced(contender: Contender) -> bool:
    return contender.durability is not None and contender.durability.survives_power_loss is False


def _contention_bar(cell: ContentionCell, titles: dict[str, str]) -> Bar:
    text = "—" if cell.anomalies is None else f"{ratio_text(cell.rates)}, {_damage(cell.anomalies)}"
    return Bar(label=titles[cell.peer], spread=cell.rates, text=text, ours=cell.peer == BACKSTAY.key)


def page(results: Results) -> str:
    """The text of docs/benchmarks.md."""
    parts = [
        _introduction(results),
        *_ratio_tables(results),
        _contention_section(results),
        _durability_section(results),
        _ahead_section(results),
        _GOALS.read_text("utf-8").strip(),
        _missing_section(results),
        _charts_section(results),
        _machine_section(results),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _introduction(results: Results) -> str:
    form = "short form" if results.short else "full form"
    return f"""# Benchmarks beside the peers

`make bench-peers` writes this page ({results.day}, {form}, {results.seconds / 60:.0f} minutes). Do not edit it.

Every figure is a ratio: the time of hand-written SQL (the *floor*) divided by the time of the peer. **1.00 is the
floor; higher is better.** The floor stores the same bytes with the same syncs in SQLite (WAL, `synchronous=FULL`). Each
peer runs in its own process and its own environment. Each round of a peer stands beside a round of the floor, on the
same disk; the order changes from round to round. A round counts its median operation. A cell shows the median of the
rounds, and their lowest and highest ratio in parentheses. A turn is a question of 500 bytes and an answer of 1,500
bytes. Each peer has its default settings.{_busy_warning(results)}"""


def _busy_warning(results: Results) -> str:
    machine = results.machine
    if machine.load <= machine.cores / 2:
        return ""
    return f"""

**Other programs kept the machine busy during this run (load average {machine.load:.1f} on {machine.cores} cores).** Two
figures differ only if their ranges hardly overlap."""


def _ratio_tables(results: Results) -> Iterator[str]:
    """A summary, then the workloads as rows and the peers as columns, a few per table, so that rows stay short."""
    yield _summary(results)
    yield "## Every peer"
    keys = [key for key in _titles(results) if key not in _NOT_PEERS]
    for start in range(0, len(keys), 2):
        yield _ratio_table(results, keys[start : start + 2])
    grouped = [cell for cell in results.cells.get(CROWD_KEY, []) if cell.peer == "grouped" and cell.spread]
    for cell in grouped:
        yield f"64 sessions at once, all turns of a round in one transaction (a raw group commit): {cell.spread}."


_NOT_PEERS = frozenset({FLOOR.key, BACKSTAY.key, "grouped"})


def _summary(results: Results) -> str:
    """Backstay beside the fastest peer whose acknowledged turns survive a power loss."""
    durable = {
        one.key: one.title
        for one in results.contenders
        if one.key not in _NOT_PEERS and one.durability is not None and one.durability.survives_power_loss
    }
    lines = ["## Backstay and the best durable peer", "", "| work | Backstay | best peer that syncs |", "|---|---|---|"]
    for workload in WORKLOADS:
        found = {cell.peer: cell.spread for cell in results.cells.get(workload.key, [])}
        lines.append(_summary_row(workload.title, found, durable))
    rates = {cell.peer: cell.rates for cell in results.contention}
    return "\n".join([*lines, _summary_row(CONTENTION_TITLE, rates, durable)])


def _summary_row(title: str, found: dict[str, Spread | None], durable: dict[str, str]) -> str:
    peers = [(spread, durable[key]) for key, spread in found.items() if key in durable and spread is not None]
    best = max(peers, key=lambda item: item[0].median, default=None)
    best_text = "—" if best is None else f"{_cell_text(best[0])} {best[1]}"
    return f"| {title} | {_cell_text(found.get(BACKSTAY.key), bold=True)} | {best_text} |"


def _ratio_table(results: Results, keys: Sequence[str]) -> str:
    titles = _titles(results)
    lines = [
        "| work | " + " | ".join(titles.get(key, key) for key in keys) + " |",
        "|---" * (len(keys) + 1) + "|",
    ]
    for workload in WORKLOADS:
        found = {cell.peer: cell.spread for cell in results.cells.get(workload.key, [])}
        cells = [_cell_text(found.get(key)) for key in keys]
        lines.append(f"| {workload.title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell_text(spread: Spread | None, *, bold: bool = False) -> str:
    if spread is None:
        return "—"
    middle = f"**{shown(spread.median)}**" if bold else shown(spread.median)
    return f"{middle} ({shown(spread.low)}–{shown(spread.high)})"


def _contention_section(results: Results) -> str:
    titles = _titles(results)
    lines = [
        "## Four processes, one session",
        "",
        _CONTENTION_TERMS,
        "",
        "| peer | speed | p99 wait | acknowledged | lost | torn | doubled | split | rejected |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_contention_row(cell, titles) for cell in results.contention]
    lines += [
        "",
        "Speed counts acknowledged turns, also those that were lost. The wait is a ratio too: higher is better.",
    ]
    return "\n".join(lines)


def _contention_row(cell: ContentionCell, titles: dict[str, str]) -> str:
    title = titles[cell.peer]
    if cell.anomalies is None:
        return f"| {title} | — | — | — | — | — | — | — | — |"
    counts = cell.anomalies
    sums = [counts.acknowledged, counts.lost, counts.torn, counts.doubled, counts.split]
    rejected = sum(cell.rejections.values())
    rejected_text = f"{rejected:,} ({', '.join(sorted(cell.rejections))})" if rejected else "0"
    numbers = " | ".join(f"{number:,}" for number in sums)
    p99 = ratio_text(cell.p99)
    return f"| {title} | {_cell_text(cell.rates)} | {p99} | {numbers} | {rejected_text} |"


def _damage(counts: Anomalies) -> str:
    numbers = {"lost": counts.lost, "torn": counts.torn, "doubled": counts.doubled, "split": counts.split}
    words = [f"{number:,} {name}" for name, number in numbers.items() if number]
    return ", ".join(words[:2]) or _UNDAMAGED


_UNDAMAGED = "none lost"


def _durability_section(results: Results) -> str:
    lines = [
        "## Durability",
        "",
        _DURABILITY_TERMS,
        "",
        "| peer | syncs per turn | journal | `synchronous` | survives power loss |",
        "|---|---|---|---|---|",
    ]
    for contender in results.contenders:
        found = contender.durability
        if contender.key != "grouped" and found is not None:
            syncs = "not counted" if found.syncs is None else f"{found.syncs:g}"
            level = found.synchronous or "—"
            lines.append(f"| {contender.title} | {syncs} | {found.journal or '—'} | {level} | {_survives(found)} |")
    lines += ["", *_durability_notes(results)]
    return "\n".join(lines)


def _survives(found: Durability) -> str:
    if found.survives_power_loss is None:
        return "not known"
    if not found.survives_power_loss:
        return "**no**"
    return "yes, with a gap¹" if found.journal == "rollback journal" else "yes"


def _durability_notes(results: Results) -> Iterator[str]:
    journals = {one.durability.journal for one in results.contenders if one.durability is not None}
    if "rollback journal" in journals:
        yield (
            "¹ With a rollback journal, a transaction is committed when the journal file is deleted. `synchronous=FULL`"
            " does not sync that deletion, so a power loss just after it can roll the turn back."
        )
        yield ""
    weaker = [one.title for one in results.contenders if _has_weak_database(one)]
    yield f"Weaker than FULL by default, and measured so: {', '.join(weaker)}." if weaker else _NONE_WEAKER


def _has_weak_database(contender: Contender) -> bool:
    return _is_unsynced(contender) and contender.durability is not None and bool(contender.durability.journal)


_NONE_WEAKER = (
    "Every peer with a database syncs at FULL by default, so none is measured again with a stronger setting. The peers"
    " that do not sync write plain files and have no such setting; *JSON file, synced* shows what a sync costs them."
)


def _ahead_section(results: Results) -> str:
    lines = ["## Where a peer is ahead of Backstay", ""]
    found = [line for workload in WORKLOADS for line in _ahead(results, workload.key, workload.title)]
    found += _ahead_in_contention(results)
    return "\n".join([*lines, *(found or ["In this run, no peer is ahead in any workload."])])


def _ahead(results: Results, key: str, title: str) -> Iterator[str]:
    cells = {cell.peer: cell.spread for cell in results.cells.get(key, [])}
    yield from _ahead_lines(results, key, title, cells)


def _ahead_in_contention(results: Results) -> Iterator[str]:
    rates = {cell.peer: cell.rates for cell in results.contention}
    yield from _ahead_lines(results, CONTENTION, CONTENTION_TITLE, rates)


def _ahead_lines(results: Results, key: str, title: str, spreads: dict[str, Spread | None]) -> Iterator[str]:
    ours = spreads.get(BACKSTAY.key)
    if ours is None:
        return
    contenders = {one.key: one for one in results.contenders}
    ahead = {
        peer: spread.median
        for peer, spread in spreads.items()
        if spread is not None and peer not in _NOT_PEERS and spread.median > ours.median
    }
    if not ahead:
        return
    yield f"- **{title}** (Backstay {shown(ours.median)}). {reasons.WORKLOADS[key]}"
    for peer, ratio in sorted(ahead.items(), key=lambda item: -item[1]):
        unsynced = _is_unsynced(contenders[peer])
        damage = _damage_of(results, peer) if key == CONTENTION else ""
        why = " ".join(
            filter(
                None,
                [
                    reasons.PEERS.get((key, peer), ""),
                    damage,
                    reasons.UNSYNCED if unsynced and key not in _READS else "",
                ],
            )
        )
        yield f"  - {contenders[peer].title} {shown(ratio)}. {why}".rstrip()


_READS = frozenset({"load_1000", "last_20", "resolve", "newest"})


def _damage_of(results: Results, peer: str) -> str:
    (counts,) = [cell.anomalies for cell in results.contention if cell.peer == peer]
    damage = _UNDAMAGED if counts is None else _damage(counts)
    return "" if damage == _UNDAMAGED else f"Of its acknowledged turns, {damage}."


def _missing_section(results: Results) -> str:
    titles = _titles(results)
    lines = ["## What a dash means", ""]
    for workload in WORKLOADS:
        lines += [
            f"- {workload.title}: {titles[cell.peer]}. {cell.reason}"
            for cell in results.cells.get(workload.key, [])
            if not cell.pairs
        ]
    lines += [f"- {CONTENTION_TITLE}: {titles[cell.peer]}. {cell.reason}" for cell in results.contention if cell.reason]
    lines += [f"- {title} was left out of this run. {_line(reason)}" for title, reason in results.skipped.items()]
    return "\n".join(lines)


def _line(text: str) -> str:
    return " ".join(text.split())


def _charts_section(results: Results) -> str:
    lines = ["## Charts", "", "The raw figures are in [benchmarks/raw.json](benchmarks/raw.json).", ""]
    for workload in WORKLOADS:
        if workload.key in results.cells:
            lines += [f"Floor: {workload.floor}.", "", f"![{workload.title}](benchmarks/{workload.key}.svg)", ""]
    lines.append(f"![{CONTENTION_TITLE}](benchmarks/{CONTENTION}.svg)")
    return "\n".join(lines)


def _machine_section(results: Results) -> str:
    machine = results.machine
    sync = f"{machine.sync_median * 1e3:.2f} ms (median), {machine.sync_p95 * 1e3:.2f} ms (95 %)"
    lines = [
        "## Machine and versions",
        "",
        f"- {machine.cores} cores, {machine.processor}, {machine.system}; load average at the start {machine.load:.1f}",
        f"- one `fdatasync` of 4 KiB on {machine.filesystem or 'the disk'}: {sync}",
        f"- Python {machine.python}; SQLite {machine.sqlite} in the floor and in Backstay",
        *(_version_line(contender) for contender in results.contenders),
    ]
    return "\n".join(lines)


def _version_line(contender: Contender) -> str:
    version = f" {contender.version}" if contender.version else ""
    return f"- {contender.title}{version}: {contender.about}"


def _titles(results: Results) -> dict[str, str]:
    return {contender.key: contender.title for contender in results.contenders}


def _rounded(results: Results) -> Results:
    """The results with times to the tenth of a microsecond: more digits are noise in a diff."""
    cells = {
        key: [
            Cell(
                peer=cell.peer,
                reason=cell.reason,
                pairs=[
                    msgspec.structs.replace(pair, floor=_brief(pair.floor), peer=_brief(pair.peer))
                    for pair in cell.pairs
                ],
            )
            for cell in found
        ]
        for key, found in results.cells.items()
    }
    return msgspec.structs.replace(results, cells=cells, seconds=round(results.seconds))


def _brief(seconds: float) -> float:
    return round(seconds, 7)
