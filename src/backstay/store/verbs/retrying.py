"""Retrying and editing: the same place in the conversation, said again or said differently."""

from collections.abc import Collection

from msgspec.structs import replace

from backstay.errors import InvalidPayload
from backstay.model.codec import encode_parts
from backstay.model.content import Part, check_input
from backstay.model.ids import MessageId, SessionId, TurnId
from backstay.model.turn import Accepted
from backstay.store.door import Door
from backstay.store.engine import Transaction
from backstay.store.verbs import history, submitting
from backstay.store.verbs.submitting import Input, Request
from backstay.store.verbs.turns import TurnRow


def retry(tx: Transaction, request: Request, served: Collection[str] | None = None) -> Accepted:
    """Submit the last turn's input again, from before that turn."""
    if request.agent is not None:
        submitting.check_agent(tx, request.agent)
    fingerprint = request.fingerprint("retry")
    first = submitting.already(tx, request, fingerprint)
    if first is not None:
        return first
    door = _enter(tx, request, "retry")
    said, spot = history.before_last_turn(tx, door)
    agent = request.agent or _agent_of(tx, door, said.turn)
    history.branch(tx, door, spot, "retry")
    said_again = Input(agent, said.parts, encode_parts(said.parts, tx.limits), fingerprint)
    return submitting.send(tx, door, _started_if(request, agent, served), said_again)


def edit(
    tx: Transaction,
    request: Request,
    message: MessageId,
    parts: tuple[Part, ...],
    served: Collection[str] | None = None,
) -> Accepted:
    """Submit other content in place of a person's message, from before its turn."""
    if request.agent is not None:
        submitting.check_agent(tx, request.agent)
    body = encode_parts(parts, tx.limits)
    check_input(parts)
    fingerprint = request.fingerprint("edit", message, body.text)
    first = submitting.already(tx, request, fingerprint)
    if first is not None:
        return first
    door = _enter(tx, request, "edit")
    turn, spot = history.before_message(tx, door, message)
    agent = request.agent or _agent_of(tx, door, turn)
    history.branch(tx, door, spot, "edit")
    return submitting.send(tx, door, _started_if(request, agent, served), Input(agent, parts, body, fingerprint))


def _started_if(request: Request, agent: str, served: Collection[str] | None) -> Request:
    """The request, but not to be started here if its agent is not served here."""
    return request if served is None or agent in served else replace(request, start=False)


def _enter(tx: Transaction, request: Request, verb: str) -> Door:
    return history.enter_idle(tx, SessionId(str(request.to)), request.owner, request.expect_revision, verb)


def _agent_of(tx: Transaction, door: Door, turn: TurnId | None) -> str:
    row = None if turn is None else tx.one("turn", turn=turn, owner=door.owner)
    agent = None if row is None else TurnRow(*row).agent
    if agent is None:
        raise InvalidPayload("it is not known which agent answered this before", hint="Say which should answer now.")
    return agent
