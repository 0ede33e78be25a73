"""Commands that accept input: submit, record, retry, edit; and the look-up of an accepted request."""

from collections.abc import Collection, Sequence
from typing import Literal

from backstay.errors import InvalidPayload
from backstay.model.addresses.address import Address
from backstay.model.codec import check_name
from backstay.model.content import Content
from backstay.model.history.chat_messages import MessageLike, input_parts, new_messages
from backstay.model.ids import MessageId, SessionId, check_message_id, check_session_id
from backstay.model.session import Ttl
from backstay.model.turn import Accepted, IfBusy, Recorded, TurnInfo
from backstay.store.commands.command import Read, Write
from backstay.store.commands.input_checks import check_start, check_target, located
from backstay.store.verbs.history import retries
from backstay.store.verbs.turns import submission
from backstay.store.verbs.turns.submission import TurnRequest


def submit(
    to: Address | SessionId | Literal["new"],
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
        to: A session, or an address, whose session is created if needed, or "new" for a new session.
        content: The input: text, parts, or a dictionary of the Chat Completions API with the role "user".
        owner: The owner of the session.
        agent: The agent that answers. None: the agent of the last turn of the session, or else `default`.
        request_id: Identifies the request among all requests of the owner. Repeating it returns the first turn and
            writes nothing, even if the address points to another session by now.
        if_busy: The policy if a turn runs or waits in the session.
        expect_revision: The revision that the session must have; None: any.
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
        QuotaExceeded: The owner has reached its limit of stored bytes or of sessions.
        InvalidPayload: An argument is not valid.
        TooLarge: The input is too long.
    """
    request = TurnRequest(
        to=None if to == "new" else check_target(to),
        owner=owner,
        id=request_id,
        agent=agent,
        if_busy=if_busy,
        expect_revision=expect_revision,
        ttl=ttl,
        start=check_start(start),
        allow_unserved=allow_unserved,
    )
    parts = input_parts(content)
    return Write(
        name="submit",
        owner=owner,
        read_first=request.conditional,
        registers=bool(start),
        verb=lambda tx: submission.submit(tx, located(tx, request), parts),
    )


def record(
    to: Address | SessionId,
    messages: Sequence[MessageLike],
    *,
    owner: str,
    request_id: str | None = None,
    if_busy: IfBusy = "enqueue",
    expect_revision: int | None = None,
    ttl: Ttl | None = None,
) -> Write[Recorded]:
    """Add the finished messages of a caller that runs its own agent, as one turn.

    Args:
        to: A session, or an address. The session of the address is created if needed.
        messages: The messages, as `NewMessage`s or as dictionaries of the Chat Completions API. A tool result must
            answer an open call.
        owner: The owner of the session.
        request_id: Identifies the request among all requests of the owner. Repeating it returns the first turn.
        if_busy: `enqueue` or `reject`: whether the messages wait behind a running turn.
        expect_revision: The revision that the session must have; None: any.
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
        QuotaExceeded: The owner has reached its limit of stored bytes.
        InvalidPayload: An argument is not valid, or a tool result answers no open call.
        TooLarge: A message is too long.
    """
    if if_busy not in ("enqueue", "reject"):
        raise InvalidPayload(f"record cannot {if_busy}", hint="Choose if_busy='enqueue' or 'reject'.")
    request = TurnRequest(
        to=check_target(to), owner=owner, id=request_id, if_busy=if_busy, expect_revision=expect_revision, ttl=ttl
    )
    new = new_messages(messages)
    return Write(
        name="record",
        owner=owner,
        read_first=request.conditional,
        verb=lambda tx: submission.record(tx, located(tx, request), new),
    )


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
        agent: The agent that answers; None: the one that answered before.
        request_id: Identifies the request among all requests of the owner. Repeating it returns the first turn.
        expect_revision: The revision that the session must have; None: any.
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
        read_first=True,
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
        agent: The agent that answers; None: the one that answered before.
        request_id: Identifies the request among all requests of the owner. Repeating it returns the first turn.
        expect_revision: The revision that the session must have; None: any.
        start: Whether this worker serves the agent, or the names of the agents that it serves.
        allow_unserved: Whether an agent may be named that no process serves or has served.

    Returns:
        The turn and its session; the open turn if it started.

    Raises:
        NotFound: The owner has no such session, or its history does not contain the message.
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
    which, parts = check_message_id(message), input_parts(content)
    return Write(
        name="edit",
        owner=owner,
        read_first=True,
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
