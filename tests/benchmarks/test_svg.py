"""The charts."""

from collections.abc import Iterator
from xml.etree import ElementTree as ET

from benchmarks.peers.report.ratios import Spread
from benchmarks.peers.report.svg import Bar, chart

SVG = "{http://www.w3.org/2000/svg}"


def _spread(low: float, median: float, high: float) -> Spread:
    return Spread(median=median, low=low, high=high, rounds=3)


def _bar(label: str, spread: Spread | None, text: str = "text") -> Bar:
    return Bar(label=label, spread=spread, text=text)


def _texts(drawing: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(drawing).iter(f"{SVG}text")]


def _centres(drawing: str) -> Iterator[float]:
    return (float(circle.attrib["cx"]) for circle in ET.fromstring(drawing).iter(f"{SVG}circle"))


def test_a_chart_is_well_formed_with_any_labels() -> None:
    drawing = chart('load <1,000> & "more"', "caption", [_bar("<peer> & co", _spread(0.5, 1.0, 2.0))])
    assert "<peer> & co" in _texts(drawing)


def test_a_chart_needs_no_script_and_no_network() -> None:
    drawing = chart("title", "caption", [_bar("peer", _spread(0.5, 1.0, 2.0))])
    root = ET.fromstring(drawing)
    assert {element.tag.removeprefix(SVG) for element in root.iter()}.isdisjoint({"script", "image", "use", "link"})
    assert "url(" not in drawing
    assert "@import" not in drawing


def test_a_chart_has_colours_for_dark_pages() -> None:
    assert "@media (prefers-color-scheme: dark)" in chart("title", "caption", [])


def test_a_higher_ratio_stands_further_right() -> None:
    bars = [_bar(str(ratio), _spread(ratio, ratio, ratio)) for ratio in (0.01, 0.1, 1.0, 10.0)]
    centres = list(_centres(chart("title", "caption", bars)))
    assert centres == sorted(centres)
    assert len(set(centres)) == 4


def test_each_row_is_inside_the_chart() -> None:
    drawing = chart("title", "caption", [_bar("a", _spread(0.0004, 0.02, 37.0)), _bar("b", None, "—")])
    width = float(ET.fromstring(drawing).attrib["width"])
    assert all(0 < centre < width for centre in _centres(drawing))


def test_a_peer_without_figures_has_a_dash_and_no_dot() -> None:
    drawing = chart("title", "caption", [_bar("peer", None, "—")])
    assert "—" in _texts(drawing)
    assert not list(_centres(drawing))


def test_a_screen_reader_gets_every_row() -> None:
    drawing = chart("title", "caption", [_bar("one", _spread(1, 1, 1), "1.0"), _bar("two", None, "—")])
    description = ET.fromstring(drawing).find(f"{SVG}desc")
    assert description is not None
    assert description.text == "one: 1.0; two: —"
