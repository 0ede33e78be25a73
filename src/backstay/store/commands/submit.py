"""Commands that accept input: submit, record, retry, edit; and the look-up of an accepted request."""

from collections.abc import Collection, Sequence

from backstay.errors import InvalidPayload
from backstay.model.addresses.address import Address
from backstay.model.codec import check_name
from backstay.model.content import Content, parts_of
from backstay.model.ids import MessageId, SessionId, check_message_id, check_session_id
from backstay.model.message import NewMessage
from backstay.model.session import Ttl
from backstay.model.turn import Accepted, IfBusy, Recorded, TurnInfo
from backstay.store.commands.command import Read, Write
from backstay.store.commands.input_checks import check_start, check_target, located
from backstay.store.verbs.history import retries
from backstay.store.verbs.turns import submission
from backstay.store.verbs.turns.submission import TurnRequest


def submit(
    to: Address | SessionId,
    content: Content,
    *,
    owner: str,
    agent: str | None = "default",
    request_id: str | None = None,
    if_busy: IfBusy = "enqueue",
    expect_revision: int | None = None,
    ttl: Ttl | None = None,
    start: bool | Collection[str] = False,
    allow_unserved: bool = True,
) -> Write[Accepted]:
    """Accept an input, in one transaction with all it needs: address, session, turn, message, lease.

    Args:
        to: A session, or an address whose session is created if there is none.
        content: The input.
        owner: The owner of the session.
        agent: The agent that shall answer. None: the one that was asked last in the session, or else `default`.
        request_id: Names one request of its owner. A request that was accepted before returns the first turn and
            writes nothing, by address or by session, even if the address leads elsewhere by now.
        if_busy: What happens if a turn runs or waits in the session.
        expect_revision: The revision that the caller has seen; None if any will do.
        ttl: When the session expires. Without it the session keeps the one it has.
        start: Whether this worker serves the agent, or the names of the agents that it serves. If no turn runs,
            the new one starts under this worker's lease; otherwise it waits, durably.
        allow_unserved: Whether an agent may be named that no process serves or has served.

    Returns:
        The turn and its session; the open turn if it started.

    Raises:
        NotFound: The owner has no such session.
        RequestMismatch: The request id was used with other content, or for another conversation.
        RevisionMismatch: The session is at another revision.
        SessionBusy: A turn runs or waits, and `if_busy` is `reject`.
        SessionEnded: The session was ended.
        SessionExpired: The session has expired.
        UnknownAgent: No process serves or has served the agent.
        QuotaExceeded: The owner stores as much as it may.
        InvalidPayload: An argument is not valid.
        TooLarge: The input is too long.
    """
    request = TurnRequest(
        to=check_target(to),
        owner=owner,
        id=request_id,
        agent=agent,
        if_busy=if_busy,
        expect_revision=expect_revision,
        ttl=ttl,
        start=check_start(start),
        allow_unserved=allow_unserved,
    )
    parts = parts_of(content)
    return Write(
        name="submit",
        owner=owner,
        registers=bool(start),
        verb=lambda tx: submission.submit(tx, located(tx, request), parts),
    )


def record(
    to: Address | SessionId,
    messages: Sequence[NewMessage],
    *,
    owner: str,
    request_id: str | None = None,
    if_busy: IfBusy = "enqueue",
    expect_revision: int | None = None,
    ttl: Ttl | None = None,
) -> Write[Recorded]:
    """Add the finished messages of a caller that runs its own agent, as one turn.

    Args:
        to: A session, or an address whose session is created if there is none.
        messages: The messages. A tool result must answer an open call.
        owner: The owner of the session.
        request_id: Names one request of its owner. A repeated request returns the first turn and names no messages.
        if_busy: `enqueue` or `reject`: whether the messages wait behind a running turn.
        expect_revision: The revision that the caller has seen; None if any will do.
        ttl: When the session expires. Without it the session keeps the one it has.

    Returns:
        The turn, its session, and the ids of the messages.

    Raises:
        NotFound: The owner has no such session.
        RequestMismatch: The request id was used with other content, or for another conversation.
        RevisionMismatch: The session is at another revision.
        SessionBusy: A turn runs, and `if_busy` is `reject`.
        SessionEnded: The session was ended.
        SessionExpired: The session has expired.
        QuotaExceeded: The owner stores as much as it may.
        InvalidPayload: An argument is not valid, or a tool result answers no open call.
        TooLarge: A message is too long.
    """
    if if_busy not in ("enqueue", "reject"):
        raise InvalidPayload(f"record cannot {if_busy}", hint="Choose if_busy='enqueue' or 'reject'.")
    request = TurnRequest(
        to=check_target(to), owner=owner, id=request_id, if_busy=if_busy, expect_revision=expect_revision, ttl=ttl
    )
    return Write(name="record", owner=owner, verb=lambda tx: submission.record(tx, located(tx, request), messages))


def retry(
    session: SessionId,
    *,
    owner: str,
    agent: str | None = None,
    request_id: str | None = None,
    expect_revision: int | None = None,
    start: bool | Collection[str] = False,
    allow_unserved: bool = True,
) -> Write[Accepted]:
    """Submit the last turn's input again, in a window from before it. The first answer stays in the lineage.

    Args:
        session: The session.
        owner: The owner of the session.
        agent: The agent that shall answer; None: the one that answered before.
        request_id: Names one request of its owner; a repetition returns the first turn.
        expect_revision: The revision that the caller has seen; None if any will do.
        start: Whether this worker serves the agent, or the names of the agents that it serves.
        allow_unserved: Whether an agent may be named that no process serves or has served.

    Returns:
        The turn and its session; the open turn if it started.

    Raises:
        NotFound: The owner has no such session.
        NothingToDo: The session has no turn that could be retried.
        RequestMismatch: The request id was used for something else.
        RevisionMismatch: The session is at another revision.
        SessionBusy: A turn runs or waits.
        SessionEnded: The session was ended.
        SessionExpired: The session has expired.
        UnknownAgent: No process serves or has served the agent.
        InvalidPayload: An argument is not valid.
    """
    request = TurnRequest(
        to=check_session_id(session),
        owner=owner,
        id=request_id,
        agent=agent,
        expect_revision=expect_revision,
        start=check_start(start),
        allow_unserved=allow_unserved,
    )
    return Write(
        name="retry",
        owner=owner,
        registers=bool(start),
        verb=lambda tx: retries.retry(tx, located(tx, request)),
    )


def edit(
    session: SessionId,
    message: MessageId,
    content: Content,
    *,
    owner: str,
    agent: str | None = None,
    request_id: str | None = None,
    expect_revision: int | None = None,
    start: bool | Collection[str] = False,
    allow_unserved: bool = True,
) -> Write[Accepted]:
    """Submit other content in place of a person's message, in a window from before its turn.

    Args:
        session: The session.
        message: The message to replace.
        content: The new input.
        owner: The owner of the session.
        agent: The agent that shall answer; None: the one that answered before.
        request_id: Names one request of its owner; a repetition returns the first turn.
        expect_revision: The revision that the caller has seen; None if any will do.
        start: Whether this worker serves the agent, or the names of the agents that it serves.
        allow_unserved: Whether an agent may be named that no process serves or has served.

    Returns:
        The turn and its session; the open turn if it started.

    Raises:
        NotFound: The owner has no such session, or the session does not read the message.
        RequestMismatch: The request id was used for something else.
        RevisionMismatch: The session is at another revision.
        SessionBusy: A turn runs or waits.
        SessionEnded: The session was ended.
        SessionExpired: The session has expired.
        UnknownAgent: No process serves or has served the agent.
        InvalidPayload: An argument is not valid, or the message is not a person's.
        TooLarge: The input is too long.
    """
    request = TurnRequest(
        to=check_session_id(session),
        owner=owner,
        id=request_id,
        agent=agent,
        expect_revision=expect_revision,
        start=check_start(start),
        allow_unserved=allow_unserved,
    )
    which, parts = check_message_id(message), parts_of(content)
    return Write(
        name="edit",
        owner=owner,
        registers=bool(start),
        verb=lambda tx: retries.edit(tx, located(tx, request), which, parts),
    )


def requested(request_id: str, *, owner: str) -> Read[TurnInfo | None]:
    """Find the turn of an accepted request.

    Args:
        request_id: The id that the request was sent with.
        owner: The owner who sent it.

    Returns:
        The turn; None if no such request was accepted.

    Raises:
        InvalidPayload: The request id is not valid.
    """
    return Read(
        name="requested",
        owner=owner,
        verb=lambda tx: submission.requested(tx, check_name("the request id", request_id, tx.limits.name_bytes), owner),
    )
