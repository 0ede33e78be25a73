"""A chart as a hand-written SVG: one row per peer on a logarithmic axis, readable in light and dark. Pure."""

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10

import msgspec

from benchmarks.peers.report.ratios import Spread, shown

WIDTH, ROW, TOP, LEFT, RIGHT, BOTTOM = 720, 26, 64, 180, 170, 34

_STYLE = """
svg { font: 13px system-ui, sans-serif }
.back { fill: #ffffff } .text { fill: #1f2328 } .faint { fill: #59636e } .grid { stroke: #d1d9e0 }
.reference { stroke: #59636e; stroke-dasharray: 4 3 } .range { stroke: #8c959f; stroke-width: 2 }
.dot { fill: #6e7781 } .ours .dot { fill: #0969da } .ours .range { stroke: #0969da } .ours .text { font-weight: 600 }
@media (prefers-color-scheme: dark) {
  .back { fill: #0d1117 } .text { fill: #f0f6fc } .faint { fill: #9198a1 } .grid { stroke: #3d444d }
  .reference { stroke: #9198a1 } .range { stroke: #656c76 } .dot { fill: #9198a1 }
  .ours .dot { fill: #4493f8 } .ours .range { stroke: #4493f8 }
}
"""


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One row: a ratio with its spread, or None with the text alone."""

    label: str
    spread: Spread | None
    text: str
    ours: bool = False


def chart(title: str, caption: str, bars: Sequence[Bar]) -> str:
    """Draw a chart.

    Args:
        title: The workload.
        caption: The meaning of 1.00.
        bars: The rows, top to bottom.

    Returns:
        The SVG document, which needs no script and no network.
    """
    decades = _decades([bar.spread for bar in bars if bar.spread is not None])
    height = TOP + ROW * len(bars) + BOTTOM
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(_description(bars))}</desc>",
        f"<style>{_STYLE}</style>",
        f'<rect class="back" width="{WIDTH}" height="{height}" rx="6"/>',
        f'<text class="text" x="16" y="26" font-size="15" font-weight="600">{escape(title)}</text>',
        f'<text class="faint" x="16" y="46" font-size="12">{escape(caption)}</text>',
        *_grid(decades, height),
    ]
    for number, bar in enumerate(bars):
        lines += _row(bar, TOP + ROW * number + ROW / 2, decades)
    return "\n".join([*lines, "</svg>", ""])


def _description(bars: Sequence[Bar]) -> str:
    return "; ".join(f"{bar.label}: {bar.text}" for bar in bars)


def _decades(spreads: Sequence[Spread]) -> tuple[int, int]:
    """The powers of ten that hold all values and the reference."""
    lowest = min([1.0, *(spread.low for spread in spreads)])
    highest = max([1.0, *(spread.high for spread in spreads)])
    low, high = floor(log10(lowest)), ceil(log10(highest))
    return (low, high) if high > low else (low, low + 1)


def _x(value: float, decades: tuple[int, int]) -> float:
    low, high = decades
    return round(LEFT + (WIDTH - LEFT - RIGHT) * (log10(value) - low) / (high - low), 1)


def _grid(decades: tuple[int, int], height: int) -> list[str]:
    bottom = height - BOTTOM
    lines = []
    for power in range(decades[0], decades[1] + 1):
        at = _x(10.0**power, decades)
        kind = "reference" if power == 0 else "grid"
        label = "floor = 1" if power == 0 else f"{10.0**power:g}"
        lines.append(f'<line class="{kind}" x1="{at}" x2="{at}" y1="{TOP - 4}" y2="{bottom}"/>')
        lines.append(
            f'<text class="faint" x="{at}" y="{bottom + 18}" font-size="11" text-anchor="middle">{label}</text>'
        )
    return lines


def _row(bar: Bar, y: float, decades: tuple[int, int]) -> list[str]:
    lines = [
        f'<g class="{"ours" if bar.ours else "peer"}">',
        f'<text class="text" x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{escape(bar.label)}</text>',
    ]
    if bar.spread is not None:
        low, middle, high = (_x(value, decades) for value in (bar.spread.low, bar.spread.median, bar.spread.high))
        lines.append(f'<line class="range" x1="{low}" x2="{high}" y1="{y}" y2="{y}"/>')
        lines.append(f'<circle class="dot" cx="{middle}" cy="{y}" r="5"/>')
    lines.append(f'<text class="faint" x="{WIDTH - RIGHT + 14}" y="{y + 4}" font-size="12">{escape(bar.text)}</text>')
    return [*lines, "</g>"]


def ratio_text(spread: Spread | None) -> str:
    """The text beside a row: the median, or a dash."""
    return "—" if spread is None else shown(spread.median)
