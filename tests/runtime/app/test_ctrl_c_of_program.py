"""A Ctrl-C ends the program while an agent runs; the same exception raised by an agent fails only its turn."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, os, signal, sys
import backstay

async def interrupted(turn):
    # Python runs the signal's handler here, while the agent computes.
    for _ in range(int(sys.argv[2])):
        os.kill(os.getpid(), signal.SIGINT)
    yield backstay.Text("hello")
    await asyncio.Event().wait()

async def main():
    async with backstay.open(sys.argv[1], agent=interrupted) as app:
        await (await (await app.session()).send("hello")).outcome()
        print("went on")

if sys.argv[3] == "runner":
    asyncio.run(main())
else:
    asyncio.new_event_loop().run_until_complete(main())
"""


@pytest.mark.parametrize(("signals", "loop"), [(1, "runner"), (2, "runner"), (1, "own loop")])
def test_a_ctrl_c_while_an_agent_runs_ends_the_program(tmp_path: Path, signals: int, loop: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "store.db"), str(signals), loop],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        env=os.environ,
    )

    assert (ran.returncode, ran.stdout) == (-signal.SIGINT, "")
    assert "KeyboardInterrupt" in ran.stderr
