"""A fork server: a process that has loaded the command line and forks itself for each command that a test runs.

Each command still has a process of its own, with its own folder, environment, streams and exit status. Only the
loading, which takes longer than most commands, is shared. The fork server opens no store and starts no thread.
"""

import atexit
import fcntl
import gc
import json
import os
import signal
import socket
import sys
import termios
import threading
import time
from contextlib import suppress
from typing import Any, NoReturn

_LONGEST = 1 << 20


def main() -> None:
    """Fork a child for each order, until the test run closes the socket."""
    _load()
    parents: set[int] = set()
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        while True:
            order, streams, _, _ = socket.recv_fds(asked, _LONGEST, 4)
            if not order:
                return
            while not order.endswith(b"\n"):
                order += asked.recv(_LONGEST)
            child = os.fork()
            if not child:
                asked.close()
                _fork_command(streams, json.loads(order))
            for stream in streams:
                os.close(stream)
            if len(streams) == 4:
                parents.add(child)
            else:
                _, status = os.waitpid(child, 0)
                asked.send(str(os.waitstatus_to_exitcode(status)).encode())
            parents -= {parent for parent in parents if os.waitpid(parent, os.WNOHANG)[0]}


def _fork_command(streams: list[int], order: dict[str, Any]) -> NoReturn:
    """Become the command; or, with a report stream, its parent, which reports the pid and the exit status."""
    if len(streams) == 3:
        _run(streams, **order)
    *streams, report = streams
    child = os.fork()
    if not child:
        os.close(report)
        _run(streams, **order)
    for stream in streams:
        os.close(stream)
    os.write(report, f"{child}\n".encode())
    _, status = os.waitpid(child, 0)
    with suppress(BrokenPipeError):
        os.write(report, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _load() -> None:
    import click  # noqa: PLC0415  # here, so that importing this module loads nothing

    import backstay.agents.acp  # noqa: PLC0415
    import backstay.agents.selection.agent_specs  # noqa: PLC0415
    import backstay.agents.selection.selection  # noqa: PLC0415
    import backstay.cli.chat.connect  # noqa: PLC0415
    import backstay.cli.chat.terminal_io  # noqa: PLC0415
    import backstay.cli.output.json_errors  # noqa: PLC0415
    import backstay.runtime.blocking  # noqa: PLC0415
    import backstay.server.serve  # noqa: PLC0415
    import backstay.store.postgres.engine  # noqa: F401, PLC0415
    from backstay.cli.main import commands  # noqa: PLC0415

    with click.Context(commands) as context:
        for verb in commands.list_commands(context):
            commands.get_command(context, verb)
    # Loaded objects are frozen: no child collects garbage among them, which would copy their pages.
    gc.freeze()


def _run(
    streams: list[int], *, arguments: list[str], folder: str, environment: dict[str, str], terminal: bool
) -> NoReturn:
    """Become the command: set up again what the interpreter derived from its environment at the start."""
    from backstay.cli.main import main as command  # noqa: PLC0415

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = [*filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *sys.path[1:]]
    time.tzset()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if terminal:
        os.setsid()
        # Ctrl-C is a signal where the program has not asked for it as a key.
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # As an interpreter opens them, which does not close them either.
    sys.stdin, sys.stdout = os.fdopen(0, "r"), os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
    sys.argv = ["backstay", *arguments]
    try:
        command()
    except SystemExit as end:
        _exit(end)
    sys.exit(0)


def _exit(end: SystemExit) -> NoReturn:
    """End as an interpreter does, except that the loaded modules are not taken apart: that takes longer than a command.

    The interpreter ends this process itself if threads still run, or if something cannot be written.
    """
    if threading.active_count() > 1 or not isinstance(end.code, int | None):
        raise end
    gc.collect()  # an object that warns when it is forgotten does so now
    atexit._run_exitfuncs()  # noqa: SLF001  # the only way to run them without taking modules apart
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        raise end from None
    os._exit(end.code or 0)


if __name__ == "__main__":
    main()
