"""The effort of a run: a sample of every sweep (`make test`), each step of it (`make crash`), or a long search.

`BACKSTAY_CRASH_ROUNDS` is set by `make crash`; `BACKSTAY_HYPOTHESIS=deep` lets Hypothesis search for long.
"""

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_FEW = 3

ROUNDS = int(os.environ.get("BACKSTAY_CRASH_ROUNDS", _FEW))
THOROUGH = ROUNDS > _FEW
DEEP = os.environ.get("BACKSTAY_HYPOTHESIS") == "deep"


def tries(some: int, many: int, deep: int) -> int:
    """How often to try, by how much this run tries."""
    return deep if DEEP else many if THOROUGH else some


def stride(steps: int) -> int:
    """How far apart the steps are that a sweep over so many tries.

    It is odd: a store writes in pairs, and a sample must not see only one half of each.
    """
    return 1 if THOROUGH else steps // 40 | 1


def sample(cases: Sequence[T], few: int, *, first: int = 0) -> Sequence[T]:
    """All cases in a thorough run; otherwise about `few` of them, evenly spread.

    Another `first` gives other cases: facts about the same cases together meet every one.
    """
    step = 1 if THOROUGH else max(1, len(cases) // few)
    return cases[first % step :: step]
