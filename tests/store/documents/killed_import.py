"""A process that is killed in the middle of an import."""

from pathlib import Path

from backstay import open_store
from tests.contract.builders import ME
from tests.contract.documents.transfers import exported, long_session
from tests.crash.worker_processes import PATIENCE, PROCESSES, die
from tests.databases import Place

# After this number of steps, only the last step of an import of this document is left.
STEPS = 10


def a_document(folder: Path) -> Path:
    """A session of another store, as a file."""
    path = folder / "session.jsonl"
    with open_store(folder / "origin.db") as origin:
        path.write_bytes(exported(origin, long_session(origin)).getvalue())
    return path


def killed(place: Place, document: Path, step: int) -> bool:
    """Import the document in a process that is killed after one of the steps; whether it was."""
    process = PROCESSES.Process(target=_import_and_die, args=(place, document, step))
    process.start()
    process.join(PATIENCE)
    return process.exitcode == -9


def _import_and_die(place: Place, document: Path, step: int) -> None:
    steps = 0

    def tell(what: str, _done: int, _total: int) -> None:
        nonlocal steps
        steps += what == "importing"
        if steps == step:
            die()

    with open_store(place) as store, document.open("rb") as file:
        store.import_session(file, owner=ME, progress=tell)
