"""How the page cuts what it hears into pictures, run by Node."""

import shutil
import subprocess
from pathlib import Path

import pytest

NODE = shutil.which("node")
PATIENCE = 120.0


@pytest.mark.skipif(NODE is None, reason="the page's modules are tested with Node, which is not installed here")
def test_an_answer_is_drawn_in_helpings_and_comes_to_the_same_story() -> None:
    ran = subprocess.run(
        [str(NODE), "--test", "--test-reporter=spec", str(Path(__file__).with_name("helping.test.mjs"))],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "pass 5" in ran.stdout
