"""What a crash may leave: the story after the last acknowledged verb, or after the one that was under way."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from backstay.testing.manual_clock import ManualClock
from tests.crash.disk_images import Image, Platter, everything, lay
from tests.crash.workload import Acknowledged, Opener, Play, Story, story
from tests.open_sqlite import open_sqlite
from tests.simulated_disk import Disk, Mark, Recorded, Tape


class Recording(NamedTuple):
    """A play that was played once: every step on the disk, what was acknowledged, and the stories it leads to.

    `stories[n]` is what is told when the process dies right after `n` verbs were acknowledged.
    """

    steps: Sequence[Recorded]
    acknowledged: Sequence[Acknowledged]
    stories: Sequence[Story]

    def allowed(self, verbs: int, *, power_lost: bool = False) -> Sequence[Story]:
        """The stories that may be told after so many acknowledgements and then a crash."""
        kept = verbs
        while power_lost and kept and not self.acknowledged[kept - 1].durable:
            kept -= 1
        return self.stories[kept : verbs + 2]

    def crashes(self) -> Iterator[tuple[int, Recorded, Platter]]:
        """Every moment to crash: how many verbs were acknowledged, the step that did not happen, and the disk."""
        platter, verbs = Platter(), 0
        for step in self.steps:
            yield verbs, step, platter
            platter.turn(step)
            verbs += isinstance(step, Mark)


def record(play: Play, folder: Path, opener: type[Opener] = Opener) -> Recording:
    """Play it once, on a disk that remembers."""
    tape, acknowledged = Tape(), []
    with Disk(tape) as disk:
        open_it = opener(folder / "played" / "store.db", disk)
        for verb in play(open_it):
            acknowledged.append(verb)
            tape.mark(len(acknowledged))
        steps = tuple(tape.steps)
        open_it.close()
    return Recording(steps, acknowledged, tuple(_stories(steps, folder)))


def _stories(steps: Sequence[Recorded], folder: Path) -> Iterator[Story]:
    platter = Platter()
    yield told(platter.image(everything), folder)
    for step in steps:
        platter.turn(step)
        if isinstance(step, Mark):
            yield told(platter.image(everything), folder)


def after_a_reboot() -> ManualClock:
    """The clock of a machine that was started again: nobody who ran before is alive."""
    clock = ManualClock()
    clock.reboot()
    return clock


def told(image: Image, folder: Path) -> Story:
    """The story that a machine tells which starts from this image."""
    path = lay(image, folder / "image")
    try:
        with open_sqlite(path, clock=after_a_reboot()) as store:
            return story(store)
    finally:
        shutil.rmtree(path.parent)
