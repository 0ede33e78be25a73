"""The leash: a process between us and a program of others, which sees to it that the program ends when we do.

Run as a script, with nothing but the standard library: `leash.py LIFELINE COMMAND…`. Whoever holds the other end of the
lifeline, a pipe, keeps the program alive; when that end is closed, by will or because its holder was killed, the
program and all that it started in its process group are told to end, and after a while made to.
"""

import os
import signal
import subprocess
import sys
import threading
from typing import NoReturn

# How long a program may take to end after it was told to.
PATIENCE = 1.5
_NOT_FOUND = 127


def main(lifeline: int, command: list[str]) -> NoReturn:
    """Run the command and end as it does; a program that a signal ended is told as shells tell it, 128 and more."""
    try:
        program = subprocess.Popen(command)  # noqa: S603  # what to run was said by whoever started us
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(_NOT_FOUND)
    # Only now: a program starts with the signals that it was left. From here on they are meant for it, not for us.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_hold, args=(lifeline, program), daemon=True).start()
    status = program.wait()
    # What it left behind in its group has nobody to work for any more.
    os.killpg(os.getpgrp(), signal.SIGTERM)
    os._exit(status if status >= 0 else 128 - status)


def _hold(lifeline: int, program: "subprocess.Popen[bytes]") -> None:
    """Wait until nobody holds the lifeline, then end the program."""
    while os.read(lifeline, 1):
        pass
    os.killpg(os.getpgrp(), signal.SIGTERM)
    try:
        program.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()
        os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
