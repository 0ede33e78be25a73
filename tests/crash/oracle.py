"""The allowed results of a crash: the history after the last acknowledged verb, or after the one under way."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from backstay.testing.manual_clock import ManualClock
from tests.crash.disk_images import Image, Platter, everything, lay
from tests.crash.workload import Acknowledged, Opener, Play, StoreHistory, history_of
from tests.open_sqlite import open_sqlite
from tests.simulated_disk import Disk, Mark, Recorded, Tape


class Recording(NamedTuple):
    """A workload that was run once: every disk step, the acknowledgements, and the resulting histories.

    `histories[n]` is the result of a crash right after `n` acknowledged verbs.
    """

    steps: Sequence[Recorded]
    acknowledged: Sequence[Acknowledged]
    histories: Sequence[StoreHistory]

    def allowed(self, verbs: int, *, power_lost: bool = False) -> Sequence[StoreHistory]:
        """The histories that are allowed after this number of acknowledgements and a crash."""
        kept = verbs
        while power_lost and kept and not self.acknowledged[kept - 1].durable:
            kept -= 1
        return self.histories[kept : verbs + 2]

    def crashes(self) -> Iterator[tuple[int, Recorded, Platter]]:
        """Every moment to crash: how many verbs were acknowledged, the step that did not happen, and the disk."""
        platter, verbs = Platter(), 0
        for step in self.steps:
            yield verbs, step, platter
            platter.turn(step)
            verbs += isinstance(step, Mark)


def record(play: Play, folder: Path, opener: type[Opener] = Opener) -> Recording:
    """Run it once, on a disk that records its steps."""
    tape, acknowledged = Tape(), []
    with Disk(tape) as disk:
        open_it = opener(folder / "played" / "store.db", disk)
        for verb in play(open_it):
            acknowledged.append(verb)
            tape.mark(len(acknowledged))
        steps = tuple(tape.steps)
        open_it.close()
    return Recording(steps, acknowledged, tuple(_histories(steps, folder)))


def _histories(steps: Sequence[Recorded], folder: Path) -> Iterator[StoreHistory]:
    platter = Platter()
    yield history_in(platter.image(everything), folder)
    for step in steps:
        platter.turn(step)
        if isinstance(step, Mark):
            yield history_in(platter.image(everything), folder)


def after_a_reboot() -> ManualClock:
    """The clock of a rebooted machine: no earlier process is alive."""
    clock = ManualClock()
    clock.reboot()
    return clock


def history_in(image: Image, folder: Path) -> StoreHistory:
    """The history on a machine that starts from this image."""
    path = lay(image, folder / "image")
    try:
        with open_sqlite(path, clock=after_a_reboot()) as store:
            return history_of(store)
    finally:
        shutil.rmtree(path.parent)
