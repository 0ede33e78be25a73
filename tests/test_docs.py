"""The documentation is executed: its examples run, its links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from reference import PAGES as REFERENCE

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")])

_EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_DATABASE = re.compile(r"environ\[\"(\w+_URL)\"\]")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if _EXAMPLE.search(page.read_text())], ids=named)
def test_every_example_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    for url in _DATABASE.findall(page.read_text()):
        monkeypatch.setenv(url, request.getfixturevalue("new_database")())
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BACKSTAY_AGENT", "scripted")  # whatever else is found on this machine
    space: dict[str, object] = {}

    for example in _EXAMPLE.finditer(page.read_text()):
        line = page.read_text()[: example.start()].count("\n") + 1
        code = compile("\n" * line + example[1], named(page), "exec")
        exec(code, space)  # the documentation is ours

    assert space


@pytest.mark.parametrize("name", REFERENCE)
def test_the_reference_says_what_the_program_declares(name: str) -> None:
    assert (ROOT / "docs" / "reference" / name).read_text() == REFERENCE[name](), "run: make reference"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    broken = [link for link in _LINK.findall(page.read_text()) if not (page.parent / link).exists()]

    assert broken == []


def test_every_test_named_by_the_guarantees_exists(request: pytest.FixtureRequest) -> None:
    named_tests = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/guarantees.md").read_text()))
    # A run of every test has them all at hand; one of a few tests has to look for the others.
    missing = named_tests - {item.name.partition("[")[0] for item in request.session.items}

    assert not missing or missing - _all_tests() == set()


def _all_tests() -> set[str]:
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    return set(re.findall(r"::(test_\w+)", collected))
