"""Every error that Backstay raises, grouped by who must act.

The first line of a docstring is the default message of the error. A server shows it to every client while it waits for
its store, so it names no ids, hosts or files.

BackstayError
├── NotFound                  this owner has no record with this id
│   └── TokenExpired          the token has expired
├── Conflict                  the session is not in the expected state; read it again, then decide
│   ├── SessionBusy           another turn is running
│   ├── LeaseLost             the writer no longer holds the lease; stop writing
│   ├── RevisionMismatch      the session changed since it was read
│   ├── RequestMismatch       the request id was used for another request
│   ├── SessionEnded          the session was ended
│   ├── SessionExpired        the session's time to live ran out
│   ├── HistoryChanged        events that were read no longer exist; read again
│   ├── QuotaExceeded         the owner has reached a limit
│   └── NothingToDo           there is nothing to undo, redo, retry, edit or decide
├── Rejected                  the input is invalid
│   ├── InvalidAddress
│   ├── InvalidPayload
│   ├── UnknownAgent          no process serves or has served an agent of this name
│   └── TooLarge
├── AccessDenied              the server does not accept the token, or the token may not do this
├── AgentError                the agent could not answer; its partial output is kept
│   ├── AgentFailed           the agent raised, or its model provider returned an error
│   │   ├── KeyRefused        the provider does not accept the API key
│   │   └── ModelUnknown      the provider has no such model
│   ├── AgentTimedOut         the agent exceeded a time limit
│   ├── InputRefused          the model provider refuses this input
│   └── ContextOverflow       the conversation exceeds the model's context
├── StoreError                the operator must act
│   ├── StoreUnavailable      the store cannot be reached or written right now
│   │   ├── CommitUnknown     the connection was lost during COMMIT and has not come back
│   │   ├── StoreMoved        the store was moved; reads still work
│   │   └── StoreReplaced     its files were moved, deleted or replaced while it was open
│   ├── StoreFull             no space; reads still work
│   │   └── StoreReadOnly     no write permission; reads still work
│   ├── SchemaMismatch        not a Backstay store, or one of another version
│   │   └── StoreArriving     a move to it is not finished
│   ├── CorruptRecord         a record cannot be read
│   └── UsedAfterFork         the handle belongs to the parent process
└── ConfigError               a setting is wrong
"""

from datetime import UTC, datetime

__all__ = [
    "AccessDenied",
    "AgentError",
    "AgentFailed",
    "AgentTimedOut",
    "BackstayError",
    "CommitUnknown",
    "ConfigError",
    "Conflict",
    "ContextOverflow",
    "CorruptRecord",
    "HistoryChanged",
    "InputRefused",
    "InvalidAddress",
    "InvalidPayload",
    "KeyRefused",
    "LeaseLost",
    "ModelUnknown",
    "NotFound",
    "NothingToDo",
    "QuotaExceeded",
    "Rejected",
    "RequestMismatch",
    "RevisionMismatch",
    "SchemaMismatch",
    "SessionBusy",
    "SessionEnded",
    "SessionExpired",
    "StoreArriving",
    "StoreError",
    "StoreFull",
    "StoreMoved",
    "StoreReadOnly",
    "StoreReplaced",
    "StoreUnavailable",
    "TokenExpired",
    "TooLarge",
    "UnknownAgent",
    "UsedAfterFork",
]


class BackstayError(Exception):
    """Base class of all errors that Backstay raises.

    The message states the problem, and `hint` what to do next. The `hint` of a class is the default advice.
    """

    hint: str = ""

    def __init__(self, message: str = "", *, hint: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").splitlines()[0])
        if hint is not None:
            self.hint = hint

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text} ({self.hint})" if self.hint else text


class NotFound(BackstayError):
    """This owner has no record with this id.

    Raised for an unknown id, and in the same way for a record of another owner.
    """

    hint = "Check the id and the owner; another owner's records are never shown."


class TokenExpired(NotFound):
    """The token has expired. `expires_at` is in milliseconds since 1970.

    Raised when a token or sign-in link is used after its time. The client must get a new one.
    """

    hint = "Ask for a new token: `backstay tokens add`, or the settings of the web UI."

    def __init__(self, expires_at: int) -> None:
        when = datetime.fromtimestamp(expires_at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        super().__init__(f"this token expired on {when}")
        self.expires_at = expires_at


class Conflict(BackstayError):
    """The session is not in the expected state.

    Raised when an operation is not possible in the session's present state. Read the session again, then decide.
    """

    hint = "Read the session again, then decide."


class SessionBusy(Conflict):
    """Another turn is running in this session.

    Raised by operations that need a session without a running turn, or even without waiting ones. Wait, or cancel them.
    """

    hint = "Submit with if_busy='enqueue', or cancel the running turn."


class LeaseLost(Conflict):
    """This writer no longer holds the session's lease.

    Raised by every write of a turn after the turn was ended, or its session taken over or deleted. The writer must
    stop: the store rejects everything that it writes.
    """

    hint = "Stop this turn: it was ended or taken over. Read the session to see its outcome."


class RevisionMismatch(Conflict):
    """The session changed since it was read.

    Raised when `expect_revision` (`If-Match` over HTTP) is not the session's revision; see `expected` and `actual`.
    Read the session again and repeat with its current revision.
    """

    hint = "Read the session again and repeat with its current revision."

    def __init__(self, message: str = "", *, expected: int = 0, actual: int = 0) -> None:
        super().__init__(message)
        self.expected, self.actual = expected, actual


class RequestMismatch(Conflict):
    """This request id was already used for a different request.

    Raised when a request repeats an id (`Idempotency-Key` over HTTP) with other content or for another session. Use a
    new id for a new request.
    """

    hint = "Use a request_id for one request; begin it with platform and chat. Repeat it only with the same content."


class SessionEnded(Conflict):
    """The session was ended and accepts no more writes.

    Raised by writes to a session that was ended. Use another session.
    """

    hint = "The session stays readable. Resolve its address again to start a new one."


class SessionExpired(Conflict):
    """The session's time to live ran out; it accepts no more writes.

    Raised by writes to a session after its time to live. Use another session.
    """

    hint = "The session stays readable. Resolve its address again to start a new one."


class HistoryChanged(Conflict):
    """Events of this session that were read before no longer exist.

    Raised when a cursor refers to events that were folded or lost in a power failure, or when the messages that a
    compaction was to summarise have changed. Read the session again.
    """

    hint = "Follow the session again from the beginning."


class QuotaExceeded(Conflict):
    """The owner has reached a limit set by the operator.

    Raised when a limit on turns, sessions or stored bytes of an owner is reached. Wait, or delete data.
    """

    hint = "Wait, delete sessions that are not needed, or ask the operator for a higher limit."


class NothingToDo(Conflict):
    """There is nothing that this operation could act on.

    Raised when there is nothing to undo, redo, retry, edit or decide. Read the session again.
    """

    hint = "Read the session again to see its current state."


class Rejected(BackstayError):
    """The input is invalid.

    Raised before anything is stored. Repeating the same input fails again: correct it first.
    """

    hint = "Correct the input and send it again."


class InvalidAddress(Rejected):
    """A part of the address is missing or malformed.

    Raised when an address is parsed or built; `part` names the wrong part. Correct it.
    """

    def __init__(self, part: str, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"address part {part!r} {problem}", hint=hint)
        self.part = part


class InvalidPayload(Rejected):
    """The content is malformed.

    Raised for messages, parts, names, documents and other input that cannot be stored. Correct it.
    """


class UnknownAgent(Rejected):
    """No process serves or has served an agent of this name.

    Raised by a submission, because its turn might wait forever. Correct the name, or set `allow_unserved`.
    """

    hint = "Check the agent's name, or set allow_unserved to queue the message until a process serves the agent."


class TooLarge(Rejected):
    """The content is larger than the limit.

    Raised when an input exceeds one of the limits of the store. Send less, or upload large content as an attachment.
    """

    hint = "Send less at once."


class AccessDenied(BackstayError):
    """The server does not accept the token, or the token may not do this.

    Raised by clients of a server. Use another token.
    """

    hint = "Use another token: `backstay tokens add`, or the settings of the web UI."


class AgentError(BackstayError):
    """The agent could not answer; its partial output is kept.

    Raised by an agent while it answers. The turn then ends as failed, with the error as its reason.
    """

    hint = "Send the message again, or retry the turn."


class AgentFailed(AgentError):
    """The agent raised, or its model provider returned an error.

    Raised also when no agent with this name is served here, and when a compaction fails. Remove the cause, then retry
    the turn.
    """


class SummaryTooLong(AgentFailed):
    """The summary is longer than the messages that it replaces.

    Raised when a compaction would make the session longer. The session is unchanged; compact it when it has grown.
    """


class KeyRefused(AgentFailed):
    """The provider does not accept the API key.

    Raised when the provider rejects the request as unauthorised. The operator must correct the key.
    """

    hint = "Check the API key, its permissions, and that it belongs to this base_url."


class ModelUnknown(AgentFailed):
    """The provider has no such model.

    Raised when the provider rejects the name of the model. The operator must correct the name or the URL.
    """

    hint = "Check the spelling of the model, and that base_url ends where its API begins, such as …/v1."


class AgentTimedOut(AgentError):
    """The agent exceeded a time limit.

    Raised when the agent takes too long to start or to answer. Retry the turn, or allow more time.
    """

    hint = "Send the message again, or allow more time."


class InputRefused(AgentError):
    """The model provider refuses this input.

    Raised when the provider rejects a request as invalid, or flags its content. The message stays visible; agents do
    not read it until it is retried or edited.
    """

    hint = "Edit the message, or retry it. If every message is refused, check the model and its options."


class ContextOverflow(AgentError):
    """The conversation exceeds the context of the agent's model.

    Raised when the provider rejects the messages as too long. Make the session shorter, then retry the turn.
    """

    hint = "Compact the session, undo the last turn, or choose a model with a larger context."


class StoreError(BackstayError):
    """The store does not work; its operator must act.

    Raised when the database, its disk or its server has a fault. The caller cannot correct it.
    """

    hint = "Nothing was changed. Fix the cause, then repeat the request."


class StoreUnavailable(StoreError):
    """The store cannot be reached or written right now; nothing was changed.

    Raised when the store is locked, closed, or its server does not answer. The same request may succeed later.
    """

    hint = "Try again. If it persists, check the disk and which process holds the store."


class CommitUnknown(StoreUnavailable):
    """The connection was lost during COMMIT, so it is not known whether the write happened.

    Raised only by PostgreSQL stores. Repeat the request with its request id, or read the session to see whether the
    write happened.
    """

    hint = "Repeat the request with the same request_id once the store is back; it is executed at most once."


class StoreMoved(StoreUnavailable):
    """The store was moved to another place; nothing was changed here and reads still work.

    Raised by writes to a store that was moved, or is being moved. Use the store at its new place.
    """

    hint = "Open the store at its new place. If the move was not finished, run it again or cancel it."


class StoreReplaced(StoreUnavailable):
    """A file of the store was moved, deleted or replaced while the store was open; nothing was written.

    Raised by SQLite stores, so that nothing is written to a file that no other process would see. Open the store again.
    """

    hint = (
        "Put the file back, or close the store and open it again (restart a server). "
        "Restore a backup only while no process has the store open."
    )


class StoreFull(StoreError):
    """The disk or database is full; nothing was changed and reads still work.

    Raised by writes when the disk or a quota is full. Repeat the request when there is space.
    """

    hint = "Free some disk space and repeat the request; no restart is needed."


class StoreReadOnly(StoreFull):
    """The disk or file cannot be written; nothing was changed and reads still work.

    Raised by writes without permission to write. Repeat the request when an operator has granted it.
    """

    hint = "Make the disk writable and repeat the request; no restart is needed."


class SchemaMismatch(StoreError):
    """The file is not a Backstay database that this version can use.

    Raised when a store is opened that is not a Backstay store, was written by a newer version, or cannot be migrated.
    Open it with the right version of Backstay.
    """


class StoreArriving(SchemaMismatch):
    """A move to this place is not finished; the store here is incomplete.

    Raised when the target of an unfinished move is opened. Finish the move first.
    """

    hint = "Run backstay.move again; it continues where it stopped."


class CorruptRecord(StoreError):
    """A record cannot be read.

    Raised when stored data cannot be decoded; `record` names the record. Restore it from a backup.
    """

    hint = "No record was skipped or changed. Keep the file and restore the record from a backup."

    def __init__(self, record: str, problem: str) -> None:
        super().__init__(f"{record}: {problem}")
        self.record = record


class UsedAfterFork(StoreError):
    """This store was opened before a fork and belongs to the parent process.

    Raised on any use in the child process, where its connections and threads do not work. Open the store in the child.
    """

    hint = "Fork first and open the store afterwards, or start the child process with spawn."


class ConfigError(BackstayError):
    """A setting is wrong.

    Raised when an app, an agent or a server is set up. Correct the setting that the message names.
    """
