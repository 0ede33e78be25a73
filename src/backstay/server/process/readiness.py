"""Why workers wait for their store, in texts that are safe to show to anyone."""

from contextlib import suppress
from pathlib import Path

import msgspec

from backstay.errors import StoreError
from backstay.model.failure_reasons import code_of, public_text

# A file of the supervisor in the folder that its workers share.
_FILE = "waiting.json"


class WorkersWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """Why a worker does not serve yet. It names no hosts or files; those are only in the log."""

    code: str
    reason: str


def reason_for(error: Exception) -> WorkersWaiting:
    """The public reason for an error that keeps a worker from serving."""
    if isinstance(error, StoreError):
        return WorkersWaiting(code=code_of(type(error)), reason=public_text(type(error)))
    if isinstance(error, OSError):
        return WorkersWaiting(
            code="system", reason=f"The operating system reports: {error.strerror or type(error).__name__}."
        )
    return WorkersWaiting(code="system", reason="The system has no memory left.")


def readiness(waiting: WorkersWaiting | None, others: tuple[WorkersWaiting, ...] = ()) -> bytes:
    """The body of `/readyz`: why this process is not ready, and why other workers of the same server are not."""
    status: dict[str, object] = {"status": "ready"}
    if waiting is not None:
        status = {"status": "not ready"} | msgspec.structs.asdict(waiting)
    return msgspec.json.encode(status | ({"waiting_workers": others} if others else {}))


def save(folder: Path | None, waiting: tuple[WorkersWaiting, ...]) -> None:
    """Write the reasons for the serving workers to read. On a full disk, only this is lost: the log has them too."""
    if folder is None:
        return
    unfinished = folder / f"{_FILE}.part"
    with suppress(OSError):
        unfinished.write_bytes(msgspec.json.encode(waiting))
        unfinished.replace(folder / _FILE)


def saved(folder: Path | None) -> tuple[WorkersWaiting, ...]:
    """The reasons that the supervisor wrote; empty if there are none."""
    if folder is None:
        return ()
    try:
        return msgspec.json.decode((folder / _FILE).read_bytes(), type=tuple[WorkersWaiting, ...])
    except (OSError, msgspec.DecodeError):
        return ()
