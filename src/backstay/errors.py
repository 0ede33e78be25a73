"""Every error a caller of Backstay can meet, grouped by who must act.

BackstayError
├── NotFound                  nothing of yours has this id
├── Conflict                  the session is not in the state you assumed; look again, then decide
│   ├── SessionBusy           somebody else is speaking
│   ├── LeaseLost             you stopped holding the session; stop writing
│   ├── RevisionMismatch      it changed since you looked
│   ├── RequestMismatch       this request id was used for something else
│   ├── SessionEnded          it was ended, for good
│   ├── SessionExpired        its time to live ran out
│   ├── StoryChanged          what you saw of a session no longer exists; read again
│   └── NothingToDo           there is nothing to undo, redo, retry, edit or decide
├── Rejected                  the input can never be accepted as it is
│   ├── InvalidAddress
│   ├── InvalidPayload
│   └── TooLarge
├── AgentError                the agent could not answer; what it said before is kept
│   ├── AgentFailed           it raised, or the provider of its model answered with an error
│   │   ├── KeyRefused        the provider does not accept the API key
│   │   └── ModelUnknown      the provider has no such model
│   ├── AgentTimedOut         it was silent for too long
│   └── ContextOverflow       the conversation is longer than its model can read
├── StoreError                the operator must act
│   ├── StoreUnavailable      cannot be reached or written right now
│   │   ├── CommitUnknown     it was lost while it answered, and has not come back
│   │   └── StoreMoved        it is elsewhere now; reads go on
│   ├── StoreFull             no room; reads go on
│   │   └── StoreReadOnly     no right to write; reads go on
│   ├── SchemaMismatch        not our file, or another version's
│   │   └── StoreArriving     a move to it is not finished
│   ├── CorruptRecord         a record cannot be read
│   └── UsedAfterFork         the handle belongs to the parent process
└── ConfigError               a setting is wrong
"""

from typing import ClassVar


class BackstayError(Exception):
    """Something Backstay could not do."""

    hint: ClassVar[str] = ""

    def __init__(self, message: str = "", *, hint: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").splitlines()[0])
        self.advice = self.hint if hint is None else hint

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text} ({self.advice})" if self.advice else text


class NotFound(BackstayError):
    """Nothing of yours has this id."""

    hint = "Check the id and the owner; another owner's records are never shown."


class Conflict(BackstayError):
    """The session is not in the state you assumed."""

    hint = "Read the session again, then decide."


class SessionBusy(Conflict):
    """Somebody else is speaking here."""

    hint = "Submit with if_busy='enqueue', or cancel the running turn."


class LeaseLost(Conflict):
    """This holder no longer has the right to write the session."""

    hint = "Stop this turn: it was ended or taken over. Read the session to see how."


class RevisionMismatch(Conflict):
    """The session changed since you looked."""

    hint = "Read the session again and repeat with its current revision."

    def __init__(self, message: str = "", *, expected: int = 0, actual: int = 0) -> None:
        super().__init__(message)
        self.expected, self.actual = expected, actual


class RequestMismatch(Conflict):
    """This request id was already used for a different request."""

    hint = "Repeat a request with the same content, or choose a new request_id."


class SessionEnded(Conflict):
    """The session was ended and takes no more writes."""

    hint = "It stays readable. Resolve its address again to start a new session."


class SessionExpired(Conflict):
    """The session's time to live ran out and it takes no more writes."""

    hint = "It stays readable. Resolve its address again to start a new session."


class StoryChanged(Conflict):
    """What you saw of this session's story no longer exists."""

    hint = "Follow it again from the beginning."


class NothingToDo(Conflict):
    """There is nothing this verb could act on."""

    hint = "Read the session again to see what it holds now."


class Rejected(BackstayError):
    """The input can never be accepted as it is."""

    hint = "Correct the input and send it again."


class InvalidAddress(Rejected):
    """A part of the address is missing or malformed."""

    def __init__(self, part: str, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"address part {part!r} {problem}", hint=hint)
        self.part = part


class InvalidPayload(Rejected):
    """The content is malformed."""


class TooLarge(Rejected):
    """The content is larger than the limit."""

    hint = "Send less at once."


class AgentError(BackstayError):
    """The agent could not answer; what it said before is kept."""

    hint = "Send the message again, or retry the turn."


class AgentFailed(AgentError):
    """The agent raised, or the provider of its model answered with an error."""


class KeyRefused(AgentFailed):
    """The provider does not accept the API key."""

    hint = "Check the API key, what it is allowed to do, and that it belongs to this base_url."


class ModelUnknown(AgentFailed):
    """The provider has no such model."""

    hint = "Check the spelling of the model, and that base_url ends where its API begins, such as …/v1."


class AgentTimedOut(AgentError):
    """The agent was silent for too long."""

    hint = "Send the message again, or allow more time."


class ContextOverflow(AgentError):
    """The conversation is longer than the agent's model can read."""

    hint = "Compact the session, undo the last turn, or choose a model with a larger context."


class StoreError(BackstayError):
    """The store cannot do its work; its operator must act."""

    hint = "Nothing was changed. Look at the cause, then repeat the request."


class StoreUnavailable(StoreError):
    """The store cannot be reached or written right now; nothing was changed."""

    hint = "Try again; if it persists, check the disk and who holds the store."


class CommitUnknown(StoreUnavailable):
    """The store was lost while it committed, and has not come back to say whether it did."""

    hint = "Repeat the request with the same request_id once the store is back; it happens at most once."


class StoreMoved(StoreUnavailable):
    """The store was moved to another place; nothing was changed here and reads go on."""

    hint = "Open the store at its new place. A move that was not finished: run it again, or call it off."


class StoreFull(StoreError):
    """There is no room to write; nothing was changed and reads go on."""

    hint = "Free some disk space and repeat the request; no restart is needed."


class StoreReadOnly(StoreFull):
    """The disk or file cannot be written; nothing was changed and reads go on."""

    hint = "Make the disk writable and repeat the request; no restart is needed."


class SchemaMismatch(StoreError):
    """The file is not a Backstay database this version can use."""


class StoreArriving(SchemaMismatch):
    """A move to this place is not finished; what is there is not a whole store."""

    hint = "Run backstay.move again; it goes on where it stopped."


class CorruptRecord(StoreError):
    """A record cannot be read."""

    hint = "Nothing was skipped or changed. Keep the file and restore the record from a backup."

    def __init__(self, record: str, problem: str) -> None:
        super().__init__(f"{record}: {problem}")
        self.record = record


class UsedAfterFork(StoreError):
    """This store was opened before a fork and belongs to the parent process."""

    hint = "Fork first and open the store afterwards, or start the child process with spawn."


class ConfigError(BackstayError):
    """A setting is wrong."""
