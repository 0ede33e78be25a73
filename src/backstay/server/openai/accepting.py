"""Accepting: in which session a request is answered, and that it is accepted there once.

A request names a conversation, or the response it follows, or nothing. Who follows the newest turn of a session goes on
in that session; who follows an earlier one goes on in a fork, because what came after it must not be read. Under an
Idempotency-Key the same turn is found again, wherever it went.
"""

import hashlib
from typing import NamedTuple

from msgspec.structs import replace

from backstay.errors import Conflict, Rejected, RevisionMismatch
from backstay.model.address import Address
from backstay.model.codec import check_name, encode_parts
from backstay.model.ids import SessionId, TurnId
from backstay.model.limits import Limits
from backstay.model.session import Ttl
from backstay.model.turn import Turn
from backstay.runtime.owned import Owned
from backstay.runtime.turn import TurnHandle
from backstay.server.openai.asking import Words
from backstay.server.openai.conversations import PLATFORM
from backstay.server.openai.names import response_name
from backstay.server.openai.narration import narrate
from backstay.server.openai.request import Request, with_request
from backstay.server.openai.stories import story_of
from backstay.store.port import Store

# What is not to be stored is deleted when it has been answered; should nobody be left to do that, time will.
FLEETING = Ttl(idle=3_600)
TRIES = 5
_SAMPLE = TurnId("trn_" + "0" * 26)


class Wanted(NamedTuple):
    """A request: who shall answer, what is said, what is asked for besides, and under which key."""

    agent: str
    words: Words
    request: Request
    key: str | None


class Target(NamedTuple):
    """Where a request goes: to a session, at a revision if it must not have changed, or to a new one at an address.

    `made` is a session that was made for it: if the request is refused, nobody wants that.
    """

    to: SessionId | Address
    revision: int | None = None
    made: SessionId | None = None


async def accept(
    owned: Owned,
    wanted: Wanted,
    *,
    conversation: SessionId | None = None,
    previous: Turn | None = None,
    fleeting: bool = False,
) -> TurnHandle:
    """Accept a request; durable when this returns."""
    _check(wanted, owned.limits)
    if conversation is not None:
        await owned.read(Store.session, conversation)
        return await _send(owned, wanted, Target(conversation))
    if previous is None:
        return await _send(owned, wanted, await _new(owned, wanted, fleeting=fleeting))
    for _ in range(TRIES):
        target = await _repeated(owned, wanted, previous) or await _following(owned, previous, fleeting=fleeting)
        if target is None:
            break
        try:
            return await _send(owned, wanted, target)
        except RevisionMismatch:
            continue  # Something happened there meanwhile: perhaps it is not the newest any more.
    return await _send(owned, wanted, await _forked(owned, wanted, previous))


def _check(wanted: Wanted, limits: Limits) -> None:
    """Raise what the second half of a request would be refused for, before the first half is recorded."""
    if wanted.key is not None:
        check_name("the request id", wanted.key, limits.name_bytes)
    if wanted.words.before:
        encode_parts(with_request(wanted.words.input, replace(wanted.request, items=_SAMPLE)), limits)


async def _new(owned: Owned, wanted: Wanted, *, fleeting: bool) -> Target:
    """A session of its own. With a key it has an address, by which a repetition finds it."""
    if wanted.key is not None:
        return Target(_address(wanted.key))
    session = await owned.write(Store.create, ttl=FLEETING if fleeting else None)
    return Target(session.id, made=session.id)


async def _repeated(owned: Owned, wanted: Wanted, previous: Turn) -> Target | None:
    """Where this request was sent when it was first accepted, if only in part."""
    if wanted.key is None:
        return None
    for to in (previous.session, _address(wanted.key)):
        for key in (wanted.key, _items_key(wanted.key)):
            if await owned.read(Store.requested, to, key) is not None:
                return Target(to)
    return None


async def _following(owned: Owned, previous: Turn, *, fleeting: bool) -> Target | None:
    """The session of a turn, as long as nothing was said in it since; None if it must be forked."""
    if previous.state != "ended":
        raise Conflict(
            f"{response_name(previous.id)} has not ended", hint="Wait for it, or cancel it, before you follow it."
        )
    session = await owned.read(Store.session, previous.session)
    page = await owned.read(Store.messages, session.id, last=1)
    newest = page.messages[-1].turn if page.messages else None
    busy = session.running is not None or session.waiting
    if fleeting or busy or newest != previous.id or session.state != "open":
        return None
    return Target(session.id, session.revision)


async def _forked(owned: Owned, wanted: Wanted, previous: Turn) -> Target:
    """A session that has all that was said up to the end of this turn, and nothing that came after."""
    narrator, _ = narrate(previous, await story_of(owned, previous))
    forked = await owned.write(Store.fork, previous.session, at=narrator.last_message)
    if wanted.key is None:
        return Target(forked.id, made=forked.id)
    address = _address(wanted.key)
    await owned.write(Store.point, address, forked.id)
    return Target(address, made=forked.id)


async def _send(owned: Owned, wanted: Wanted, target: Target) -> TurnHandle:
    """Send a request where it belongs; a session made for one that is refused, or went elsewhere, goes again."""
    try:
        turn = await _give(owned, wanted, target)
    except Rejected:
        if target.made is not None:
            await owned.write(Store.delete, target.made)
        raise
    if target.made not in (None, turn.session):
        # Whoever sent the same at the same time was first.
        await owned.write(Store.delete, target.made)
    return turn


async def _give(owned: Owned, wanted: Wanted, target: Target) -> TurnHandle:
    """Record what comes before, then submit the input, which names what was recorded."""
    to, revision, request = target.to, target.revision, wanted.request
    if wanted.words.before:
        key = None if wanted.key is None else _items_key(wanted.key)
        before = wanted.words.before
        recorded = await owned.write(Store.record, to, before, request_id=key, expect_revision=revision)
        revision = None
        request = replace(request, items=recorded.turn.id)
    return await owned.submit(
        to,
        with_request(wanted.words.input, request),
        agent=wanted.agent,
        request_id=wanted.key,
        expect_revision=revision,
    )


def _items_key(key: str) -> str:
    """The key under which the items before the input are recorded; as long whatever the key is."""
    return f"items {hashlib.sha256(key.encode()).hexdigest()}"


def _address(key: str) -> Address:
    return Address.chat(PLATFORM, "request", chat=key)
