"""Turns as rows and values, and the steps they go through: waiting, running, ended."""

import msgspec

from backstay.errors import CorruptRecord, NotFound
from backstay.model.codec import FORMAT, decode_parts, decode_usage
from backstay.model.content import Part
from backstay.model.ids import SessionId, TurnId
from backstay.model.message import NewMessage
from backstay.model.turn import OUTCOMES, Call, Turn, TurnState
from backstay.store.engine import Row, Transaction

_decode_record = msgspec.json.Decoder(tuple[NewMessage, ...]).decode
encode_record = msgspec.json.Encoder().encode


class TurnRow(msgspec.Struct):
    """A turn's row, in the order of its columns."""

    id: TurnId
    session: SessionId
    root: TurnId
    agent: str | None
    state: TurnState
    outcome: str | None = None
    reason: str = ""
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

    @property
    def is_record(self) -> bool:
        """Whether it carries finished messages of a caller's own agent instead of an input."""
        return self.agent is None

    def parts(self) -> tuple[Part, ...]:
        """The input it waits with."""
        return decode_parts(self.id, self.format, self.input or "[]")

    def messages(self) -> tuple[NewMessage, ...]:
        """The finished messages it waits with."""
        try:
            return _decode_record(self.input or "[]")
        except msgspec.DecodeError as error:
            raise CorruptRecord(self.id, str(error)) from error

    def value(self) -> Turn:
        """The turn as a caller sees it."""
        outcome = None if self.outcome is None else OUTCOMES[self.outcome](self.reason)
        return Turn(
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
        )


def find(tx: Transaction, turn: TurnId, owner: str) -> TurnRow:
    """The turn's row; another owner's is not found."""
    row = tx.one("turn", turn=turn, owner=owner)
    if row is None:
        raise NotFound(f"no turn {turn} of {owner!r}")
    return TurnRow(*row)


def find_row(tx: Transaction, turn: TurnId, owner: str) -> TurnRow:
    """The row of a turn that is known to exist."""
    row = tx.one("turn", turn=turn, owner=owner)
    if row is None:
        raise CorruptRecord(turn, "is missing")
    return TurnRow(*row)


def call_value(row: Row) -> Call:
    """A line of the ledger as a caller sees it."""
    turn, root, ordinal, call, name, arguments_hash, approval, effect, started_at, ended_at = row
    return Call(
        turn=turn,
        root=root,
        ordinal=ordinal,
        call=call,
        name=name,
        arguments_hash=arguments_hash,
        approval=approval,
        effect=effect,
        started_at=started_at,
        ended_at=ended_at,
    )
