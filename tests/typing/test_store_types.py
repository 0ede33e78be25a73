"""A type checker sees through the seam between store, runtime and server: misuse is an error, correct use is not."""

import os
import re
from pathlib import Path

import pytest

# The oldest supported dependencies are tested without a type checker.
api = pytest.importorskip("mypy.api")

SOURCES = Path(__file__).parents[2] / "src"

IMPORTS = """\
from functools import partial

from backstay import Client, Store
from backstay.model.ids import SessionId, TurnId
from backstay.model.session import SessionInfo
from backstay.runtime.async_store import AsyncStore
from backstay.runtime.blocking import BlockingApp, BlockingSession
from backstay.runtime.owner_sessions import OwnerSessions
from backstay.runtime.task_supervisor import TaskSupervisor
from backstay.store import commands
from backstay.store.commands import Read, Write
"""

FUNCTION = """

async def use_{number}(
    store: Store,
    far: AsyncStore,
    owned: OwnerSessions,
    supervisor: TaskSupervisor,
    app: BlockingApp,
    blocking: BlockingSession,
    client: Client,
    session: SessionId,
    turn: TurnId,
) -> None:
"""

MISUSES = {
    "a method instead of a command": ("await far.run(Store.fold)", "arg-type"),
    "the method of a command instead of the command": ("await far.run(Store.rename)", "arg-type"),
    "a function instead of its command": ("await owned.run(commands.rename)", "arg-type"),
    "wrong arguments of a command": ("await owned.run(commands.reorder(5, 'nonsense', no_such=True))", "call-arg"),
    "a command without its owner": ("await owned.run(commands.rename(session, 'a title'))", "call-arg"),
    "a read where only a write can be started": (
        "store.start(commands.session(session, owner='me'), print)",
        "arg-type",
    ),
    "the result of a command as another type": (
        "title: str = await owned.run(commands.rename(session, 'a title', owner='me'))",
        "arg-type",
    ),
    "wrong arguments of a method of the store": ("store.rename(session, 5, owner='me')", "arg-type"),
    "a turn for a session": ("store.session(turn, owner='me')", "arg-type"),
    "wrong arguments of an operation of several transactions": ("await far.call(Store.fold, newer_than=1)", "call-arg"),
    "a method of something else": ("await far.call(str.upper)", "arg-type"),
    "an unknown argument of an input": (
        "await supervisor.accept('me', partial(commands.submit, session, 'hi', owner='me', agnt='x'))",
        "call-arg",
    ),
    "a command that accepts no input": (
        "await supervisor.accept('me', partial(commands.session, session, owner='me'))",
        "arg-type",
    ),
    "an unknown argument of a blocking method": ("blocking.send('hello', agnt='x')", "call-arg"),
    "an option of another type": ("blocking.send('hello', if_busy='soon')", "arg-type"),
    "an unknown option over HTTP": ("await client.send('new', 'hello', agnt='x')", "call-arg"),
    "the async result of a blocking method": ("await blocking.undo()", "misc"),
    "a blocking iterator that is not one": ("numbers: int = next(app.follow())", "assignment"),
}

USES = {
    "a write": "row: SessionInfo = await owned.run(commands.rename(session, 'a title', owner='me'))",
    "a read": "row: SessionInfo = await owned.run(commands.session(session, owner='me'))",
    "a write that is started": "store.start(commands.rename(session, None, owner='me'), lambda: None)",
    "a method of the store": "row: SessionInfo = store.rename(session, 'a title', owner='me', by='agent')",
    "an operation of several transactions": "rows: int = await far.call(Store.fold, older_than=1)",
    "a blocking method": "row: SessionInfo = blocking.rename('a title')",
    "a chain of blocking methods": "said: str = app.session().send('hello').id",
    "an input": "await supervisor.accept('me', partial(commands.submit, session, 'hi', owner='me'))",
    "a command that is kept": "kept: Write[SessionInfo] | Read[SessionInfo] = commands.create(owner='me')",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The errors of mypy in a function with each of the statements; one run for all of them."""
    folder = tmp_path_factory.mktemp("typing")
    statements = {**{name: statement for name, (statement, _) in MISUSES.items()}, **USES}
    text, lines = IMPORTS, {}
    for number, (name, statement) in enumerate(statements.items()):
        text += FUNCTION.format(number=number) + f"    {statement}\n"
        lines[text.count("\n")] = name
    (folder / "program.py").write_text(text)
    (folder / "mypy.ini").write_text(f"[mypy]\nstrict = true\nmypy_path = {SOURCES}\n")
    out, err, _ = api.run(
        [f"--config-file={folder / 'mypy.ini'}", f"--cache-dir={os.devnull}", str(folder / "program.py")]
    )
    assert not err
    errors = dict.fromkeys(statements, "")
    for line in out.splitlines():
        if match := re.search(r"program\.py:(\d+): error: (.*)", line):
            errors[lines[int(match[1])]] += match[2]
    return errors


@pytest.mark.parametrize("misuse", MISUSES)
def test_misuse_of_the_seam_is_a_type_error(misuse: str, found: dict[str, str]) -> None:
    assert f"[{MISUSES[misuse][1]}]" in found[misuse]


@pytest.mark.parametrize("use", USES)
def test_proper_use_of_the_seam_is_not_a_type_error(use: str, found: dict[str, str]) -> None:
    assert found[use] == ""
