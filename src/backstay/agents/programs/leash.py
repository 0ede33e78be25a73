"""The leash: a process between us and an external program, which ends the program when our process ends.

Run as a script, with only the standard library: `leash.py LIFELINE DIRECTORY COMMAND…`. DIRECTORY, in which the program
works, is a file descriptor, because its path may lead elsewhere by now. LIFELINE is the read end of a pipe whose write
end our process holds. When the write end is closed, deliberately or because our process was killed, the program and
its process group receive SIGTERM, and SIGKILL after a delay.
"""

import os
import signal
import subprocess
import sys
import threading
from typing import NoReturn

# How long a program may take to exit after SIGTERM.
EXIT_SECONDS = 1.5
_NOT_FOUND = 127


def main(lifeline: int, directory: int, command: list[str]) -> NoReturn:
    """Run the command and exit with its status; for a program that a signal ended, with 128 plus the signal number."""
    try:
        os.fchdir(directory)
        os.close(directory)
        program = subprocess.Popen(command)  # noqa: S603  # our parent process chose the command
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(_NOT_FOUND)
    # Only now, so that the program does not inherit SIG_IGN. From here on these signals are meant for the program.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_lifeline, args=(lifeline, program), daemon=True).start()
    status = program.wait()
    # End the processes that the program left in its group.
    os.killpg(os.getpgrp(), signal.SIGTERM)
    os._exit(status if status >= 0 else 128 - status)


def _end_with_lifeline(lifeline: int, program: "subprocess.Popen[bytes]") -> None:
    """Wait until the write end of the lifeline is closed, then end the program."""
    while os.read(lifeline, 1):
        pass
    os.killpg(os.getpgrp(), signal.SIGTERM)
    try:
        program.wait(EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()
        os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
