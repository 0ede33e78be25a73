"""Lazy imports: a package imports a name when it is first used."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_import(package: str, places: Mapping[str, str]) -> Callable[[str], object]:
    """Make a `__getattr__` for a package (PEP 562).

    Args:
        package: The package's `__name__`.
        places: For each name the module below the package; `module:attribute` if the attribute has another name, and
            `module:` if the name is the module itself.

    Returns:
        A function that imports a name, stores it in the package and returns it.
    """

    def load(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, mark, attribute = places[name].partition(":")
        found: object = import_module(f"{package}.{module}")
        if attribute or not mark:
            found = getattr(found, attribute or name)
        setattr(sys.modules[package], name, found)
        return found

    return load
