"""`make check-names`: one name, one thing.

Fails if a class name is defined twice in `src/backstay`, if two modules have the same name, or if a module name uses a
word that is neither in `checks/words.txt` nor in the glossary; and if a folder, also of the tests and the benchmarks,
holds more than fourteen modules.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "backstay"
ROOTS = (SOURCE, ROOT / "tests", ROOT / "benchmarks", ROOT / "reference", ROOT / "checks")
MOST_MODULES = 14
# Each engine has its own implementation of these; some have a common interface above both.
ENGINE_FOLDERS = ("store/sqlite", "store/postgres")
_TERM = re.compile(r"\*\*([^*]+)\*\*")


def main() -> int:
    """Print every problem; the exit status is 1 if there is one."""
    problems = [*repeated_classes(), *repeated_modules(), *unknown_words(), *crowded_folders()]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def repeated_classes() -> Iterator[str]:
    """Class names that are defined more than once."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in _modules():
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{_shown(module)}:{node.lineno}")
    yield from _repeated("class", places)


def repeated_modules() -> Iterator[str]:
    """Module names that exist more than once, except for the implementations of one thing by each engine."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in _modules():
        if module.stem != "__init__":
            places[module.stem].append(_shown(module))
    yield from _repeated("module", {name: found for name, found in places.items() if not _is_engine_pair(found)})


def unknown_words() -> Iterator[str]:
    """Words in names of modules and packages that neither the dictionary nor the glossary has."""
    known = {line.strip() for line in (ROOT / "checks" / "words.txt").read_text("utf-8").splitlines()}
    glossary = (ROOT / "docs" / "glossary.md").read_text("utf-8").lower()
    known.update(word for term in _TERM.findall(glossary) for word in re.findall(r"[a-z]+", term))
    for module in _modules():
        name = module.parent.name if module.stem == "__init__" else module.stem
        for word in name.split("_"):
            if word and not {word, word.removesuffix("s")} & known:
                yield f"unknown word {word!r} in {_shown(module)}: use a plain word, or add it to checks/words.txt"


def crowded_folders() -> Iterator[str]:
    """Folders with too many modules."""
    counts: dict[Path, int] = defaultdict(int)
    for root in ROOTS:
        for module in _modules(root):
            counts[module.parent] += module.stem != "__init__"
    for folder, count in counts.items():
        if count > MOST_MODULES:
            yield f"{_shown(folder)} holds {count} modules, more than {MOST_MODULES}: give its parts packages"


def _repeated(kind: str, places: Mapping[str, list[str]]) -> Iterator[str]:
    for name, found in sorted(places.items()):
        if len(found) > 1:
            yield f"{kind} {name} exists {len(found)} times: {', '.join(found)}"


def _is_engine_pair(found: list[str]) -> bool:
    """At most one module of each engine, and at most one above them, in `store`."""
    inside = [next((engine for engine in ENGINE_FOLDERS if f"/{engine}/" in place), None) for place in found]
    above = [place for place, engine in zip(found, inside, strict=True) if engine is None]
    return len(set(inside)) == len(inside) and all("/store/" in place for place in above)


def _modules(root: Path = SOURCE) -> Iterator[Path]:
    return (path for path in sorted(root.rglob("*.py")) if "static" not in path.parts)


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


if __name__ == "__main__":
    sys.exit(main())
