"""Runs one server for a test run and outlives neither: when the run's end of the pipe closes, the server is stopped.

A program of its own, so that it also acts when the test run is killed: `python watchdog.py '{"command": …}'`. It prints
`ready <pid>` once the server has written the ready line to its error stream, and `ended <code>` when it has ended. It
receives names of signals, one per line, and forwards them. It needs nothing but the standard library.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, TextIO

# How long a server may take to stop at once before it is killed.
PATIENCE = 30.0


def main(order: dict[str, Any]) -> None:  # Any: JSON
    """Start the server, hand on signals, and stop it with the test run."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = subprocess.Popen(
        order["command"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, **order["environment"]},
        start_new_session=True,
        **order["account"],
    )
    assert server.stderr is not None, "it is a pipe"
    reading = threading.Thread(target=_keep_log, args=(server, server.stderr, order), daemon=True)
    reading.start()
    for line in sys.stdin:
        _signal(server, signal.Signals[line.strip()])
    _stop(server, signal.Signals[order["stop"]])
    reading.join(PATIENCE)


def _keep_log(server: "subprocess.Popen[str]", stream: TextIO, order: dict[str, Any]) -> None:  # Any: JSON
    ready = order["ready"]
    with Path(order["log"]).open("a") as log:
        for line in stream:
            log.write(line)
            log.flush()
            if ready is not None and ready in line:
                ready = None
                _say("ready", server.pid)
    _say("ended", server.wait())


def _stop(server: "subprocess.Popen[str]", how: signal.Signals) -> None:
    _signal(server, signal.SIGCONT)
    _signal(server, how)
    try:
        server.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        _signal(server, signal.SIGKILL)
        server.wait()


def _signal(server: "subprocess.Popen[str]", which: signal.Signals) -> None:
    # `send_signal` looks first whether the server is gone, so no stranger with the same number is met.
    server.send_signal(which)


def _say(*words: object) -> None:
    try:
        sys.stdout.write(" ".join(map(str, words)) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        pass  # The test run has ended; the remaining steps need no listener.


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
