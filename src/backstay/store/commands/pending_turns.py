"""Commands that change accepted turns: cancel, edit, withdraw, release, reorder, decide on tool calls, forget."""

from collections.abc import Sequence

from backstay.model.content import Content
from backstay.model.history.chat_messages import input_parts
from backstay.model.ids import SessionId, TurnId, check_session_id, check_turn_id
from backstay.model.turn import ToolCallRecord, TurnInfo
from backstay.store.commands.command import Write
from backstay.store.commands.input_checks import check_names
from backstay.store.verbs import reader_marks
from backstay.store.verbs.turns import approvals, cancellation, turn_queue


def cancel(turn: TurnId, *, owner: str, take: bool = False) -> Write[TurnInfo]:
    """Ask a turn to stop; a waiting one ends at once. Its output so far is kept.

    Args:
        turn: The turn. Cancelling an ended one changes nothing.
        owner: The owner of the session.
        take: Fence off the holder and end the turn now.

    Returns:
        The turn.

    Raises:
        NotFound: The owner has no such turn.
        NothingToDo: Another turn has taken it as steering.
    """
    which = check_turn_id(turn)
    return Write(
        name="cancel", owner=owner, read_first=True, verb=lambda tx: cancellation.cancel(tx, which, owner, take)
    )


def edit_waiting(turn: TurnId, content: Content, *, owner: str) -> Write[TurnInfo]:
    """Change the input of a turn that still waits.

    Args:
        turn: The waiting turn.
        content: Its new input.
        owner: The owner of the session.

    Returns:
        The turn.

    Raises:
        NotFound: The owner has no such turn.
        SessionBusy: The turn runs already.
        NothingToDo: The turn has ended, or another turn has taken it as steering.
        Conflict: The turn carries finished messages.
        QuotaExceeded: The owner has reached its limit of stored bytes.
        InvalidPayload: The input is not valid.
        TooLarge: The input is too long.
    """
    which, parts = check_turn_id(turn), input_parts(content)
    return Write(
        name="edit_waiting",
        owner=owner,
        read_first=True,
        verb=lambda tx: turn_queue.edit_waiting(tx, which, owner, parts),
    )


def withdraw(turn: TurnId, *, owner: str) -> Write[TurnInfo]:
    """Withdraw a turn that still waits.

    Args:
        turn: The waiting turn.
        owner: The owner of the session.

    Returns:
        The turn.

    Raises:
        NotFound: The owner has no such turn.
        SessionBusy: The turn runs already.
        NothingToDo: The turn has ended, or another turn has taken it as steering.
    """
    which = check_turn_id(turn)
    return Write(name="withdraw", owner=owner, read_first=True, verb=lambda tx: turn_queue.withdraw(tx, which, owner))


def release(turn: TurnId, *, owner: str) -> Write[TurnInfo]:
    """Release a held turn of an imported session: it starts when it is next. A turn that is not held is not changed.

    Args:
        turn: The waiting turn.
        owner: The owner of the session.

    Returns:
        The turn.

    Raises:
        NotFound: The owner has no such turn.
        SessionBusy: The turn runs already.
        NothingToDo: The turn has ended, or another turn has taken it as steering.
    """
    which = check_turn_id(turn)
    return Write(name="release", owner=owner, read_first=True, verb=lambda tx: turn_queue.release(tx, which, owner))


def reorder(
    session: SessionId, turns: Sequence[TurnId], *, owner: str, expect_revision: int | None = None
) -> Write[tuple[TurnInfo, ...]]:
    """Put the waiting turns of a session into this order.

    Args:
        session: The session.
        turns: Each of its waiting turns, once.
        owner: The owner of the session.
        expect_revision: The revision that the session must have; None: any.

    Returns:
        The waiting turns in their new order.

    Raises:
        NotFound: The owner has no such session.
        Conflict: `turns` does not name each waiting turn once.
        RevisionMismatch: The session is at another revision.
        InvalidPayload: `turns` is not a list of ids.
    """
    where, order = check_session_id(session), tuple(check_turn_id(turn) for turn in check_names("turns", turns))
    return Write(
        name="reorder",
        owner=owner,
        read_first=True,
        verb=lambda tx: turn_queue.reorder(tx, where, owner, order, expect_revision),
    )


def approve(
    turn: TurnId,
    call: str,
    *,
    owner: str,
    arguments_hash: str | None = None,
    run_again: bool = False,
) -> Write[ToolCallRecord]:
    """Approve a tool call that needs approval.

    Args:
        turn: The turn that made the call.
        call: The id of the call.
        owner: The owner of the session.
        arguments_hash: The hash of the arguments that were shown to the person.
        run_again: Allow one more run of a call of an interrupted turn that may have run, under a new key.

    Returns:
        The call.

    Raises:
        NotFound: The owner has no such turn.
        NothingToDo: The call is not waiting for a decision.
        Conflict: The arguments of the call are not the ones that were shown.
    """
    which = check_turn_id(turn)
    if run_again:
        return Write(
            name="approve",
            owner=owner,
            read_first=True,
            verb=lambda tx: approvals.allow_run_again(tx, which, call, owner, arguments_hash=arguments_hash),
        )
    return Write(
        name="approve",
        owner=owner,
        read_first=True,
        verb=lambda tx: approvals.decide(tx, which, call, owner, approved=True, arguments_hash=arguments_hash),
    )


def deny(turn: TurnId, call: str, *, owner: str, arguments_hash: str | None = None) -> Write[ToolCallRecord]:
    """Deny a tool call that needs approval.

    Args:
        turn: The turn that made the call.
        call: The id of the call.
        owner: The owner of the session.
        arguments_hash: The hash of the arguments that were shown to the person.

    Returns:
        The call.

    Raises:
        NotFound: The owner has no such turn.
        NothingToDo: The call is not waiting for a decision.
        Conflict: The arguments of the call are not the ones that were shown.
    """
    which = check_turn_id(turn)
    return Write(
        name="deny",
        owner=owner,
        read_first=True,
        verb=lambda tx: approvals.decide(tx, which, call, owner, approved=False, arguments_hash=arguments_hash),
    )


def forget(turn: TurnId, *, owner: str) -> Write[TurnInfo]:
    """Hide an ended turn from reads by its id. Its messages stay.

    Changes neither revision nor context number.

    Args:
        turn: The ended turn.
        owner: The owner of the session.

    Returns:
        The turn.

    Raises:
        NotFound: The owner has no such turn.
        Conflict: The turn has not ended.
    """
    which = check_turn_id(turn)
    return Write(
        name="forget", owner=owner, read_first=True, wakes=False, verb=lambda tx: reader_marks.forget(tx, which, owner)
    )
