"""The row of a turn, and the rows of its tool calls."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from backstay.errors import CorruptRecord, NotFound
from backstay.model.codec import FORMAT, decode_parts, decode_usage
from backstay.model.content import Part
from backstay.model.ids import SessionId, TurnId
from backstay.model.message import NewMessage
from backstay.model.turn import ToolCallRecord, TurnInfo, TurnState, outcome_of
from backstay.store.engine import Transaction
from backstay.store.rows import Rows

_decode_record = msgspec.json.Decoder(tuple[NewMessage, ...]).decode
_encode = msgspec.json.Encoder().encode


def encode_record(messages: Sequence[NewMessage]) -> str:
    """The finished messages of a recorded turn, as they are stored while it waits."""
    return _encode(messages).decode()


class TurnRow(msgspec.Struct):
    """The row of a turn."""

    id: TurnId
    session: SessionId
    root: TurnId
    agent: str | None
    state: TurnState
    outcome: str | None = None
    reason: str = ""
    code: str = ""
    hint: str = ""
    steer: int = 0
    taken_by: TurnId | None = None
    cancel_requested: int = 0
    format: int = FORMAT
    input: str | None = None
    request_id: str | None = None
    usage: str | None = None
    created_at: int = 0
    started_at: int | None = None
    ended_at: int | None = None
    event: int = 0
    first_event: int | None = None
    forgotten: int = 0
    held: int = 0
    continued_by: TurnId | None = None

    @property
    def is_record(self) -> bool:
        """Whether the turn carries finished messages of a caller's own agent instead of an input."""
        return self.agent is None

    @property
    def input_bytes(self) -> int:
        """The bytes of text that the row itself stores; 0 unless the turn waits."""
        return len((self.input or "").encode())

    def parts(self) -> tuple[Part, ...]:
        """The input of a waiting turn."""
        return decode_parts(self.id, self.format, self.input or "[]")

    def messages(self) -> tuple[NewMessage, ...]:
        """The finished messages of a waiting turn."""
        try:
            return _decode_record(self.input or "[]")
        except msgspec.DecodeError as error:
            raise CorruptRecord(self.id, str(error)) from error

    def value(self) -> TurnInfo:
        """The turn as a caller sees it."""
        outcome = None if self.outcome is None else outcome_of(self.outcome, self.reason, self.code, self.hint)
        return TurnInfo(
            id=self.id,
            session=self.session,
            root=self.root,
            agent=self.agent,
            state=self.state,
            outcome=outcome,
            steer=bool(self.steer),
            taken_by=self.taken_by,
            cancel_requested=bool(self.cancel_requested),
            input=None if self.input is None or self.is_record else self.parts(),
            request_id=self.request_id,
            usage=decode_usage(self.id, self.usage),
            created_at=self.created_at,
            started_at=self.started_at,
            ended_at=self.ended_at,
            event=self.event,
            forgotten=bool(self.forgotten),
            held=self.state == "waiting" and bool(self.held),
            continued_by=self.continued_by,
        )


class LastOfRoot(NamedTuple):
    """The newest turn of a root turn, and its outcome."""

    turn: TurnId
    outcome: str | None


TURN = Rows("turn", TurnRow)
WAITING_TURNS = Rows("waiting_turns", TurnRow)
LAST_OF_ROOT = Rows("last_of_root", LastOfRoot)
CALL = Rows("call", ToolCallRecord)
CALLS = Rows("calls", ToolCallRecord)
LEDGER = Rows("ledger", ToolCallRecord)


def find(tx: Transaction, turn: TurnId, owner: str) -> TurnRow:
    """Read the row of a turn. Raises `NotFound`, also for the turn of another owner."""
    row = TURN.one(tx, turn=turn, owner=owner)
    if row is None:
        raise NotFound(f"no turn {turn} of {owner!r}")
    return row


def find_row(tx: Transaction, turn: TurnId, owner: str) -> TurnRow:
    """Read the row of a turn that must exist. Raises `CorruptRecord` if it does not."""
    row = TURN.one(tx, turn=turn, owner=owner)
    if row is None:
        raise CorruptRecord(turn, "is missing")
    return row
