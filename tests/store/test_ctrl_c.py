"""A Ctrl-C never interrupts a transaction."""

import os
import signal
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, signal, sys
from backstay import Address, open_store
from backstay.concurrency.ctrl_c import uninterrupted

with open_store(sys.argv[1]) as store:
    session = store.create(owner="me").id
    done = []

    def work():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("all of it")
        return True

    try:
        uninterrupted(work)
    except KeyboardInterrupt:
        print("interrupted after", *done)
    print("pinned", store.pin(session, True, owner="me").pinned)
"""


def test_a_ctrl_c_during_a_write_on_the_main_thread_is_raised_after_it(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "store.db")],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        env=os.environ,
    )

    assert ran.stdout.splitlines() == ["interrupted after all of it", "pinned True"]
