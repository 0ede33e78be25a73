"""A nursery: a process that has loaded the command line, and bears a child of itself for each command that is run.

Each command has a process of its own, as always: its own folder, environment, streams and end. Only the loading, which
takes longer than what most commands do, is shared. The nursery itself never opens a store and never starts a thread.
"""

import gc
import json
import os
import signal
import socket
import sys
import time
from typing import NoReturn

_LONGEST = 1 << 20


def main() -> None:
    """Bear children until nobody asks for any more."""
    _load()
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        while True:
            order, streams, _, _ = socket.recv_fds(asked, _LONGEST, 3)
            if not order:
                return
            while not order.endswith(b"\n"):
                order += asked.recv(_LONGEST)
            child = os.fork()
            if not child:
                asked.close()
                _run(streams, **json.loads(order))
            for stream in streams:
                os.close(stream)
            _, status = os.waitpid(child, 0)
            asked.send(str(os.waitstatus_to_exitcode(status)).encode())


def _load() -> None:
    import click  # noqa: PLC0415  # here, so that who asks for a nursery does not load what it loads

    import backstay.agents.ladder  # noqa: PLC0415
    import backstay.cli.complaints  # noqa: PLC0415
    import backstay.runtime.blocking  # noqa: PLC0415
    import backstay.server.casting  # noqa: PLC0415
    import backstay.store.postgres.engine  # noqa: F401, PLC0415
    from backstay.cli.main import commands  # noqa: PLC0415

    with click.Context(commands) as context:
        for verb in commands.list_commands(context):
            commands.get_command(context, verb)
    # What is loaded stays: no child looks through it for rubbish, and so copies it.
    gc.freeze()


def _run(streams: list[int], *, arguments: list[str], folder: str, environment: dict[str, str]) -> NoReturn:
    """Be the command: what the interpreter made of its surroundings when it began is made anew."""
    from backstay.cli.main import main as command  # noqa: PLC0415

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # As an interpreter opens them, which does not close them either.
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in enumerate(("r", "w", "w")))
    sys.argv = ["backstay", *arguments]
    command()
    sys.exit(0)


if __name__ == "__main__":
    main()
