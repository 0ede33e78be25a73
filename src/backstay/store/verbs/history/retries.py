"""Retry and edit: submit the input of an earlier turn again, unchanged or changed."""

from backstay.errors import InvalidPayload
from backstay.model.codec import encode_parts
from backstay.model.content import Part, check_input
from backstay.model.ids import MessageId, SessionId, TurnId
from backstay.model.turn import Accepted
from backstay.store.engine import Transaction
from backstay.store.session_row import SessionRow, SessionScope
from backstay.store.verbs import agent_registry, owner_totals
from backstay.store.verbs.history import branches
from backstay.store.verbs.turns import submission
from backstay.store.verbs.turns.submission import Input, TurnRequest
from backstay.store.verbs.turns.turn_row import TURN


def retry(tx: Transaction, request: TurnRequest) -> Accepted:
    """Submit the input of the last turn again, in a window that ends before that turn."""
    if request.agent is not None:
        _check_agent(tx, request, request.agent)
    fingerprint = request.fingerprint("retry")
    first = submission.repeated_result(tx, request, fingerprint)
    if first is not None:
        return first
    with _lock_idle(tx, request, "retry") as session_row:
        message, location = branches.before_last_turn(tx, session_row)
        body = encode_parts(message.parts, tx.limits)
        owner_totals.require_text(tx, session_row, body.size)
        agent = request.agent or _agent_of(tx, session_row, message.turn)
        branches.branch(tx, session_row, location, "retry")
        sent = submission.send(tx, session_row, request, Input(agent, message.parts, body, fingerprint))
    return sent.accepted(tx.now)


def edit(tx: Transaction, request: TurnRequest, message: MessageId, parts: tuple[Part, ...]) -> Accepted:
    """Submit other content instead of a person's message, in a window that ends before its turn."""
    if request.agent is not None:
        _check_agent(tx, request, request.agent)
    body = encode_parts(parts, tx.limits)
    check_input(parts)
    fingerprint = request.fingerprint("edit", message, body.text)
    first = submission.repeated_result(tx, request, fingerprint)
    if first is not None:
        return first
    with _lock_idle(tx, request, "edit") as session_row:
        owner_totals.require_text(tx, session_row, body.size)
        found = branches.before_message(tx, session_row, message)
        agent = request.agent or _agent_of(tx, session_row, found.turn)
        branches.branch(tx, session_row, found.location, "edit")
        sent = submission.send(tx, session_row, request, Input(agent, parts, body, fingerprint))
    return sent.accepted(tx.now)


def _check_agent(tx: Transaction, request: TurnRequest, agent: str) -> None:
    """Raise if the request names an agent that no process serves."""
    agent_registry.check_agent_name(tx, agent)
    if not (request.allow_unserved or request.starts(agent)):
        agent_registry.check_served(tx, agent)


def _lock_idle(tx: Transaction, request: TurnRequest, verb: str) -> SessionScope:
    return branches.lock_idle_session(tx, SessionId(str(request.to)), request.owner, request.expect_revision, verb)


def _agent_of(tx: Transaction, session_row: SessionRow, turn: TurnId | None) -> str:
    row = None if turn is None else TURN.one(tx, turn=turn, owner=session_row.owner)
    agent = None if row is None else row.agent
    if agent is None:
        raise InvalidPayload("the agent that answered before is unknown", hint="Name the agent that should answer now.")
    return agent
