"""The page's modules, tested by Node."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

NODE = shutil.which("node")
PATIENCE = 120.0

needs_node = pytest.mark.skipif(NODE is None, reason="the page's modules are tested with Node, which is not here")


def passes(file: str, count: int, **environment: str) -> None:
    """Run the tests of a file beside this one: there is this number of them, and all pass."""
    ran = subprocess.run(
        [str(NODE), "--test", "--test-reporter=spec", str(Path(__file__).with_name(file))],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"pass {count}" in ran.stdout
