"""Public names: exports, type checkers, the reference and the examples agree about them."""

import ast
import importlib
import inspect
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import pytest

import backstay
from backstay.agents import AgentTurn
from tests.documentation.code_blocks import PAGES, ROOT, blocks, named

PUBLIC = ["backstay", "backstay.agents", "backstay.commands", "backstay.errors", "backstay.events", "backstay.testing"]
# These import a name on first use; type checkers read the imports under TYPE_CHECKING.
LAZY = ["backstay", "backstay.agents"]
REFERENCE = ROOT / "docs" / "reference"


def exported(module: str) -> list[str]:
    names = importlib.import_module(module).__all__
    assert isinstance(names, list)
    return names


@pytest.mark.parametrize("module", PUBLIC)
def test_every_exported_name_exists_once(module: str) -> None:
    names = exported(module)
    assert len(names) == len(set(names))
    assert [name for name in names if not hasattr(importlib.import_module(module), name)] == []


@pytest.mark.parametrize("module", LAZY)
def test_type_checkers_see_exactly_the_exported_names(module: str) -> None:
    source = importlib.import_module(module).__file__
    assert source is not None
    tree = ast.parse(Path(source).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    seen = {name.asname or name.name for node in imports for name in node.names}
    # `backstay.open` is not exported to star imports, and is bound to `open_app` for type checkers.
    assert seen - {"TYPE_CHECKING", "lazy_import", "open_app"} == set(exported(module))


@pytest.mark.parametrize("module", ["backstay", "backstay.agents", "backstay.testing"])
def test_the_reference_describes_every_exported_name(module: str) -> None:
    text = (REFERENCE / "library.md").read_text()
    section = text[text.index(f"\n## {module}\n") :].partition("\n## ")[2].partition("\n## ")[0]
    assert [name for name in exported(module) if f"**`{name}" not in section] == []


@pytest.mark.parametrize("kind", [backstay.App, backstay.Session, backstay.Turn, AgentTurn])
def test_a_program_can_import_each_value_that_a_method_takes_or_returns(kind: type) -> None:
    names = {name for module in PUBLIC for name in exported(module)}
    assert {value.__name__ for value in values_of_methods(kind)} - names == set()


def test_the_reference_names_the_type_of_each_field_and_result() -> None:
    text = (REFERENCE / "library.md").read_text()
    assert "- `usage` (`Usage`): " in text
    assert "**`AgentTurn.messages`** (`tuple[Message, ...]`)" in text
    assert "- `content` (`Content`): " in text
    assert "`** → `TurnInfo`" in text


def values_of_methods(kind: type) -> set[type]:
    """The structures in the parameters and results of the public methods of a class."""
    found: set[type] = set()
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            waiting = list(get_type_hints(method).values())
            while waiting:
                one = waiting.pop()
                waiting += get_args(one)
                found |= {one} if inspect.isclass(one) and issubclass(one, msgspec.Struct) else set()
    return found


@pytest.mark.parametrize(("module", "page"), [("backstay.errors", "errors.md"), ("backstay.commands", "library.md")])
def test_the_reference_describes_every_error_and_command(module: str, page: str) -> None:
    text = (REFERENCE / page).read_text()
    values = {"ANY", "LATEST", "NOTHING", "NO_NOTES", "Read", "Write"}
    spelled = {"list_sessions": "list"}
    assert [name for name in exported(module) if name not in values and f"`{spelled.get(name, name)}" not in text] == []


def imported(text: str) -> set[str]:
    """The modules of Backstay that a program imports."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
    return {module for module in found if module.partition(".")[0] == "backstay"}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_examples_import_public_modules_only(page: Path) -> None:
    programs = [block.text for block in blocks(page) if block.language == "python"]
    assert set().union(*map(imported, programs)) - set(PUBLIC) == set()
