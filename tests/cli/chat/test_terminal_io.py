"""The task of the input line ends with its block."""

import asyncio

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from backstay.cli.chat.terminal_io import TerminalIO


@pytest.mark.parametrize("steps", [0, 1, 10])
async def test_an_input_line_that_is_left_waits_for_no_key(steps: int) -> None:
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        terminal = TerminalIO(list, busy=lambda: False, commands=[], history=None)
        before = asyncio.all_tasks()
        async with terminal.open():
            for _ in range(steps):
                await asyncio.sleep(0)

    assert asyncio.all_tasks() <= before
