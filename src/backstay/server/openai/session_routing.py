"""Selects the session in which a request is answered, and submits it there: once per Idempotency-Key.

A request names a conversation, or the previous response, or neither. A request after the newest turn of a session
continues that session. A request after an earlier turn continues in a fork, because the agent must not read the later
messages. A request that repeats an Idempotency-Key finds the turn of the first one, in whichever session it is.
"""

import hashlib
from typing import NamedTuple

from msgspec.structs import replace

from backstay.errors import Conflict, Rejected, RequestMismatch, RevisionMismatch
from backstay.model.addresses.address import Address
from backstay.model.codec import check_name, encode_parts
from backstay.model.ids import SessionId, TurnId
from backstay.model.limits import Limits
from backstay.model.session import SessionInfo, Ttl
from backstay.model.turn import TurnInfo
from backstay.runtime.owner_sessions import OwnerSessions
from backstay.runtime.turn_handle import Turn
from backstay.server.openai.conversation_routes import PLATFORM
from backstay.server.openai.encoding.response_encoder import encode_turn
from backstay.server.openai.encoding.turn_events import events_of
from backstay.server.openai.openai_ids import response_name
from backstay.server.openai.parameters import TurnInput
from backstay.server.openai.stored_request import StoredRequest, with_request
from backstay.store import commands

# A session with store=false is deleted when it has been answered. If the process dies before, it expires.
TEMPORARY_TTL = Ttl(idle=3_600)
TRIES = 5
_SAMPLE = TurnId("trn_" + "0" * 26)


class RequestedResponse(NamedTuple):
    """A request: the agent, the messages, the parameters and the Idempotency-Key."""

    agent: str
    words: TurnInput
    request: StoredRequest
    key: str | None


class Target(NamedTuple):
    """Where to submit a request: a session, optionally at an expected revision, or an address.

    `made` is a session that was created for this request, and is deleted if the request is rejected.
    """

    to: SessionId | Address
    revision: int | None = None
    made: SessionId | None = None


async def accept(
    owned: OwnerSessions,
    wanted: RequestedResponse,
    *,
    conversation: SessionId | None = None,
    previous: TurnInfo | None = None,
    temporary: bool = False,
) -> Turn:
    """Submit a request; it is durable when this returns.

    Args:
        owned: The caller's data.
        wanted: The request.
        conversation: The session that the request names.
        previous: The turn after which the request continues.
        temporary: Whether the session is to be deleted after the answer.

    Raises:
        NotFound: The conversation does not exist.
        Conflict: The previous turn has not ended, or the session does not accept the request.
        Rejected: The request is invalid.
    """
    _check(wanted, owned.limits)
    if conversation is not None:
        await owned.run(commands.session(conversation, owner=owned.owner))
        return await _send(owned, wanted, Target(conversation))
    if previous is None:
        return await _send(owned, wanted, await _new(owned, wanted, temporary=temporary))
    for _ in range(TRIES):
        target = await _repeated(owned, wanted) or await _following(owned, previous, temporary=temporary)
        if target is None:
            break
        try:
            return await _send(owned, wanted, target)
        except RevisionMismatch:
            continue  # The session changed: check again whether the turn is the newest.
    return await _send(owned, wanted, await _forked(owned, wanted, previous, temporary=temporary))


def _check(wanted: RequestedResponse, limits: Limits) -> None:
    """Validate the input before the messages before it are recorded, so that no request is accepted only in part."""
    if wanted.key is not None:
        check_name("the request id", wanted.key, limits.name_bytes)
    if wanted.words.before:
        encode_parts(with_request(wanted.words.input, replace(wanted.request, items=_SAMPLE)), limits)


async def _new(owned: OwnerSessions, wanted: RequestedResponse, *, temporary: bool) -> Target:
    """A new session. With a key, it has an address, and a repeated request finds it there."""
    if wanted.key is not None:
        return Target(_address(wanted.key))
    session = await owned.run(commands.create(ttl=TEMPORARY_TTL if temporary else None, owner=owned.owner))
    return Target(session.id, made=session.id)


async def _repeated(owned: OwnerSessions, wanted: RequestedResponse) -> Target | None:
    """The session of the first request with this key, even if that request was accepted only in part."""
    if wanted.key is None:
        return None
    for key in (wanted.key, _items_key(wanted.key)):
        first = await owned.run(commands.requested(key, owner=owned.owner))
        if first is not None:
            return Target(first.session)
    return None


async def _following(owned: OwnerSessions, previous: TurnInfo, *, temporary: bool) -> Target | None:
    """The session of a turn, if the turn is its newest and nothing runs or waits there; None if a fork is needed."""
    if previous.state != "ended":
        raise Conflict(
            f"{response_name(previous.id)} has not ended",
            hint="Wait until it ends, or cancel it, before you continue it.",
        )
    session = await owned.run(commands.session(previous.session, owner=owned.owner))
    page = await owned.run(commands.messages(session.id, last=1, owner=owned.owner))
    newest = page.messages[-1].turn if page.messages else None
    busy = session.running is not None or session.waiting > session.held
    if temporary or busy or newest != previous.id or session.state != "open":
        return None
    return Target(session.id, session.revision)


async def _forked(owned: OwnerSessions, wanted: RequestedResponse, previous: TurnInfo, *, temporary: bool) -> Target:
    """A fork that has the messages up to the end of this turn."""
    forked = await fork_after(owned, previous, temporary=temporary)
    if wanted.key is None:
        return Target(forked.id, made=forked.id)
    address = _address(wanted.key)
    await owned.run(commands.point(address, forked.id, owner=owned.owner))
    return Target(address, made=forked.id)


async def fork_after(owned: OwnerSessions, previous: TurnInfo, *, temporary: bool) -> SessionInfo:
    """Fork a session after a response; a temporary fork expires if the process dies before it deletes the fork."""
    encoder, _ = encode_turn(previous, await events_of(owned, previous))
    ttl = TEMPORARY_TTL if temporary else None
    return await owned.run(commands.fork(previous.session, at=encoder.last_message, ttl=ttl, owner=owned.owner))


async def _send(owned: OwnerSessions, wanted: RequestedResponse, target: Target) -> Turn:
    """Submit the request; delete a session created for it if it is rejected or was already accepted elsewhere."""
    try:
        turn = await _submit_input(owned, wanted, target)
    except Rejected:
        if target.made is not None:
            await owned.run(commands.delete(target.made, owner=owned.owner))
        raise
    if target.made not in (None, turn.session):
        # A concurrent request with the same key was first.
        await owned.run(commands.delete(target.made, owner=owned.owner))
    return turn


async def _submit_input(owned: OwnerSessions, wanted: RequestedResponse, target: Target) -> Turn:
    """Record the messages before the input, then submit the input with a reference to them."""
    to, revision, request = target.to, target.revision, wanted.request
    if wanted.words.before:
        key = None if wanted.key is None else _items_key(wanted.key)
        await _refuse_other_request(owned, wanted, key)
        before = wanted.words.before
        recorded = await owned.run(
            commands.record(to, before, request_id=key, expect_revision=revision, owner=owned.owner)
        )
        revision = None
        request = replace(request, items=recorded.turn.id)
    return await owned.send(
        to,
        with_request(wanted.words.input, request),
        agent=wanted.agent,
        request_id=wanted.key,
        expect_revision=revision,
    )


async def _refuse_other_request(owned: OwnerSessions, wanted: RequestedResponse, items: str | None) -> None:
    """Raise, before anything is recorded, if the key belongs to a request without messages before its input."""
    if wanted.key is None or items is None:
        return
    first = await owned.run(commands.requested(wanted.key, owner=owned.owner))
    if first is not None and await owned.run(commands.requested(items, owner=owned.owner)) is None:
        raise RequestMismatch(f"request {wanted.key!r} was accepted before with other content, as {first.id}")


def _items_key(key: str) -> str:
    """The key of the recorded messages before the input. Its length does not depend on the key."""
    return f"items {hashlib.sha256(key.encode()).hexdigest()}"


def _address(key: str) -> Address:
    return Address.chat(PLATFORM, "request", chat=key)
