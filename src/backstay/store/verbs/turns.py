"""Turns as rows and values, and the steps they go through: waiting, running, ended."""

import msgspec

from backstay.errors import CorruptRecord, NotFound
from backstay.model.codec import decode_parts, decode_usage
from backstay.model.content import Part
from backstay.model.ids import TurnId
from backstay.model.message import NewMessage
from backstay.model.turn import OUTCOMES, Call, Turn
from backstay.store.engine import Row, Transaction

_decode_record = msgspec.json.Decoder(tuple[NewMessage, ...]).decode
encode_record = msgspec.json.Encoder().encode


class TurnRow(msgspec.Struct):
    """A turn's row, in the order of its columns."""

    id: TurnId
    session: str
    root: TurnId
    agent: str | None
    state: str
    outcome: str | None
    reason: str
    steer: int
    taken_by: TurnId | None
    cancel_requested: int
    format: int
    input: str | None
    request_id: str | None
    usage: str | None
    created_at: int
    started_at: int | None
    ended_at: int | None
    first_event: int | None

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
            session=self.session,  # type: ignore[arg-type]  # the column holds nothing but session ids
            root=self.root,
            agent=self.agent,
            state=self.state,  # type: ignore[arg-type]  # a CHECK holds the column to the three states
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
    turn, root, ordinal, call, name, arguments_hash, approval, effect = row
    return Call(
        turn=turn,
        root=root,
        ordinal=ordinal,
        call=call,
        name=name,
        arguments_hash=arguments_hash,
        approval=approval,
        effect=effect,
    )
