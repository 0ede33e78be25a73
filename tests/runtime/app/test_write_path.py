"""The path of a message to the writer's queue is short."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import backstay
from tests.runtime.controlled_agents import echo

PACKAGE = str(Path(backstay.__file__).parent)
# The calls that make the task, the command and the job, and the one that queues it. Every call that waits for one of
# them to return is part of the path; all others check an argument or look something up.
ENDS = ("create_task", "submit", "SqliteJob.__init__", "Writer.submit")


class WritePath:
    """Follows one message until it is in the writer's queue."""

    def __init__(self) -> None:
        self.calls: list[FrameType] = []
        self.depth = 0

    def trace(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or frame.f_code.co_qualname not in ENDS:
            return
        stack = list(frames_of_backstay(frame))
        self.calls += [each for each in stack if each not in self.calls]
        self.depth = max(self.depth, len(stack))
        if frame.f_code.co_qualname == ENDS[-1]:
            sys.setprofile(None)

    @property
    def names(self) -> list[str]:
        return [frame.f_code.co_qualname for frame in self.calls]


def frames_of_backstay(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            yield frame
        frame = frame.f_back


@contextmanager
def followed() -> Iterator[WritePath]:
    path = WritePath()
    sys.setprofile(path.trace)
    try:
        yield path
    finally:
        sys.setprofile(None)


async def test_a_message_reaches_the_writers_queue_in_eight_calls(tmp_path: Path) -> None:
    async with backstay.open(tmp_path / "chat.db", agent=echo) as app:
        session = await app.session()
        with followed() as path:
            turn = await session.send("hello")
        await turn.outcome()

    calls = [name for name in path.names if name != "Session.send"]
    assert "Writer.submit" in calls
    assert len(calls) <= 8, calls
    assert path.depth <= 8
