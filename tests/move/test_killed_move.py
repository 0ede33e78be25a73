"""A move that is killed at any of its lines, repeatedly, continues each time it is run."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from backstay import move, open_store
from backstay.errors import StoreArriving, StoreMoved
from tests.contract.builders import ME
from tests.crash.worker_processes import PATIENCE, PROCESSES, die
from tests.databases import Place
from tests.effort import THOROUGH
from tests.move.conftest import MoveEnds
from tests.move.full_store import StoreContents, contents_of, fill_store

MOVING = ("/store/moving/", "/site.py")
FIRST = 30
GROWTH, MANY = (1.22, 10) if THOROUGH else (1.9, 4)


def test_a_move_killed_at_any_line_continues_and_loses_nothing(ends: MoveEnds) -> None:
    with open_store(ends.source) as store:
        fill_store(store, turns=150)
        before = contents_of(store)

    deaths, line = 0, float(FIRST)
    while lived(ends.source, ends.target, round(line)) is False:
        deaths, line = deaths + 1, line * GROWTH
        assert stands(ends.source, before), f"killed at line {round(line)}"
        assert not (stands(ends.target, before) and takes_writes(ends.source)), "it is never in two places"

    with open_store(ends.target) as store:
        assert contents_of(store) == before
    assert not takes_writes(ends.source)
    assert deaths > MANY


def stands(place: Place, before: StoreContents) -> bool:
    """Whether everything that was visible before is visible here."""
    try:
        with open_store(place) as store:
            return store.list(owner=ME).sessions != () and bodies_of(store.list, before)
    except StoreArriving:
        return False


def takes_writes(place: Place) -> bool:
    """Whether a message could still be written here."""
    try:
        with open_store(place) as store:
            store.create(owner="a witness")
    except StoreMoved:
        return False
    return True


def bodies_of(listed: Callable[..., Any], before: StoreContents) -> bool:  # Any: `Store.list`
    """Whether the list shows the same sessions as before."""
    mine = {seen.session.id for seen in before.seen if seen.session.owner == ME}
    return {session.id for session in listed(owner=ME, limit=1000).sessions} == mine


def lived(source: Place, target: Place, line: int) -> bool:
    """Run the move in a separate process, which dies at this line unless it has finished before."""
    process = PROCESSES.Process(target=move_and_die, args=(source, target, line))
    process.start()
    process.join(PATIENCE)
    assert process.exitcode in (0, -9)
    return process.exitcode == 0


def move_and_die(source: Place, target: Place, line: int) -> None:
    """Count the lines of the move, and die at one of them."""
    left = line

    def trace(frame: FrameType, event: str, argument: object) -> Any:  # Any: a tracer returns itself
        nonlocal left
        if not any(part in frame.f_code.co_filename for part in MOVING):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                die()
        return trace

    sys.settrace(trace)
    move(source, target)
    sys.settrace(None)
