"""A lasting fault does not fill the disk with its log lines: it is logged once, then counted."""

import io
import logging
import resource
import socket
from pathlib import Path

from backstay.server.telemetry.logs import JsonLines, RepeatLimiter
from tests.cli.forked_command import PATIENCE
from tests.server.api_calls import answered, new_session, until
from tests.server.server_process import HERE, serving


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def limited(clock: Clock) -> tuple[logging.Logger, io.StringIO]:
    written = io.StringIO()
    handler = RepeatLimiter(written, clock)
    handler.setFormatter(JsonLines())
    logger = logging.Logger("test")  # noqa: LOG001  # one that no other test shares
    logger.addHandler(handler)
    return logger, written


def test_a_warning_that_repeats_itself_is_written_once_and_then_counted() -> None:
    clock = Clock()
    logger, written = limited(clock)
    for _ in range(1_000):
        logger.warning("out of files", extra={"place": "here"})
    clock.now = 20.0
    logger.info("something else")
    lines = written.getvalue().splitlines()
    assert len(lines) == 3
    assert '"repeated":999' in lines[1]
    assert "something else" in lines[2]


def test_different_fields_and_info_records_are_never_counted_as_repeated() -> None:
    logger, written = limited(Clock())
    for number in range(10):
        logger.warning("turn could not be written", extra={"turn": number})
        logger.info("request")
    assert len(written.getvalue().splitlines()) == 20


def test_a_server_that_is_out_of_files_logs_little_and_answers_when_there_are_some(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with serving(tmp_path, "--db", str(tmp_path / "chat.db"), environment=HERE) as served:
        with served.client() as client:
            session = new_session(client)
        before = resource.prlimit(served.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(served.pid, resource.RLIMIT_NOFILE, (3, before[1]))
        with socket.create_connection(("127.0.0.1", served.port), PATIENCE):
            until(lambda: "out of system resource" in log.read_text(), "the fault in the log")
            resource.prlimit(served.pid, resource.RLIMIT_NOFILE, before)
        with served.client() as client:
            answered(client, session, "are you there?")
        assert served.terminate() == 0
    assert log.read_text().count("out of system resource") <= 10
