"""Commands for the holder of a running turn: keep its lease, store its events, end it, compact its session."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from backstay.model.content import Body, Text, Thought
from backstay.model.history.unsynced import UNSYNCED_BYTES, Words
from backstay.model.ids import (
    MessageId,
    SessionId,
    TurnId,
    WindowId,
    check_message_id,
    check_session_id,
    check_turn_id,
    check_window_id,
)
from backstay.model.message import MessagePage, NewMessage
from backstay.model.turn import Checkpointed, Compacting, Finished, Inbox, OpenTurn, Outcome, Renewed, Rotated
from backstay.store.commands.command import Read, Write
from backstay.store.commands.input_checks import check_bodies, check_names, check_start
from backstay.store.session_row import find_held
from backstay.store.verbs import session_queries
from backstay.store.verbs.history import branches, compaction_turn
from backstay.store.verbs.history.window_segments import origin_of
from backstay.store.verbs.turns import lifecycle, resumption, submission

NOTHING: Mapping[str, int] = {}


def resume(turn: TurnId, *, owner: str, agents: Collection[str] | None = None) -> Write[OpenTurn]:
    """Open a new turn that continues an interrupted one: same input, same root, same ledger.

    Only for the last turn of its session, and only while no turn runs or waits there.

    Args:
        turn: The interrupted turn.
        owner: The owner of the session.
        agents: The agents that this worker serves; None: all.

    Returns:
        The open turn.

    Raises:
        NotFound: The owner has no such turn.
        NothingToDo: The turn was not interrupted.
        Conflict: The turn is not the last one, or its agent is not among `agents`.
        SessionBusy: A turn runs or waits.
        InvalidPayload: `agents` is not a list of names.
    """
    which = check_turn_id(turn)
    check_start(True if agents is None else agents)
    return Write(
        name="resume",
        owner=owner,
        read_first=True,
        registers=agents is None or bool(agents),
        verb=lambda tx: resumption.resume(tx, which, owner, agents),
    )


def interrupted(agents: Collection[str], *, within: float = 3600.0) -> Read[tuple[tuple[TurnId, str], ...]]:
    """List the turns that `resume` could continue: interrupted lately, with nothing in the session since.

    Args:
        agents: The agents of the turns.
        within: How many seconds ago they may have been interrupted.

    Returns:
        The turns, each with its owner.

    Raises:
        InvalidPayload: `agents` is not a list of names.
    """
    check_names("agents", agents)
    return Read(
        name="interrupted",
        owner=None,
        verb=lambda tx: tuple(session_queries.interrupted(tx, agents, tx.now - round(within * 1000))),
    )


def decided(agents: Collection[str]) -> Read[tuple[tuple[TurnId, str], ...]]:
    """List the interrupted turns to continue: a person has decided about one of their tool calls.

    Args:
        agents: The agents of the turns.

    Returns:
        The turns, each with its owner.

    Raises:
        InvalidPayload: `agents` is not a list of names.
    """
    check_names("agents", agents)
    return Read(name="decided", owner=None, verb=lambda tx: tuple(session_queries.decided(tx, agents)))


def awaited(agents: Collection[str]) -> Read[bool]:
    """Check whether a turn waits for one of these agents, whether or not it can start now.

    Args:
        agents: The agents.

    Returns:
        Whether one waits.

    Raises:
        InvalidPayload: `agents` is not a list of names.
    """
    check_names("agents", agents)
    return Read(name="awaited", owner=None, verb=lambda tx: submission.is_awaited(tx, agents))


def renew(turn: OpenTurn) -> Write[Renewed]:
    """Renew the lease of a turn that has nothing to store. Writes no event and no revision.

    Args:
        turn: The open turn.

    Returns:
        The open turn with its longer lease, and its inbox.

    Raises:
        LeaseLost: The turn is no longer this holder's.
    """
    return Write(name="renew", owner=turn.owner, wakes=False, verb=lambda tx: lifecycle.renew(tx, turn))


def inbox(turn: OpenTurn) -> Read[Inbox]:
    """Read the inbox of the holder: a cancel request, steering, waiting turns.

    Args:
        turn: The open turn.

    Returns:
        The inbox.

    Raises:
        LeaseLost: The turn is no longer this holder's.
    """
    return Read(name="inbox", owner=turn.owner, snapshot=False, verb=lambda tx: find_held(tx, turn).inbox())


def is_stored(turn: OpenTurn, message: MessageId) -> Read[bool]:
    """Read whether a message that the holder has seen in the session still exists: a database can lose commits.

    Args:
        turn: The open turn.
        message: The message.

    Returns:
        Whether it exists.
    """
    which = check_message_id(message)
    return Read(name="is_stored", owner=turn.owner, snapshot=False, verb=lambda tx: origin_of(tx, which) is not None)


def checkpoint(
    turn: OpenTurn,
    bodies: Sequence[Body],
    *,
    take_steering: bool = False,
    repeats: Mapping[str, int] = NOTHING,
) -> Write[Checkpointed]:
    """Store the output of the agent since the last checkpoint.

    Text and thoughts alone survive the death of the process; anything else survives power loss.

    Args:
        turn: The open turn.
        bodies: The output.
        take_steering: Whether the waiting steering inputs become part of this turn before the agent sees them.
        repeats: The calls that repeat a call of an interrupted turn, with its ordinal. A call that only waited for a
            person, or is idempotent, keeps its key; one that may have run and was allowed again gets a new key.

    Returns:
        The open turn to use next, its inbox, the steering that was taken, and the keys of the calls.

    Raises:
        LeaseLost: The turn is no longer this holder's.
        InvalidPayload: A body is not valid.
        TooLarge: A body is too long.
    """
    # Words need no sync: their holder remembers them until the next one, and a long stream has one now and then.
    words = _only_words(check_bodies(bodies))
    unsynced = None if take_steering or turn.unsynced.size >= UNSYNCED_BYTES else words
    return Write(
        name="checkpoint",
        owner=turn.owner,
        durable=unsynced is None,
        verb=lambda tx: lifecycle.checkpoint(
            tx, turn, bodies, take_steering=take_steering, repeats=repeats, unsynced=unsynced
        ),
    )


def finish(
    turn: OpenTurn,
    outcome: Outcome,
    *,
    bodies: Sequence[Body] = (),
    agents: Collection[str] = (),
    compact: bool = False,
) -> Write[Finished]:
    """End the turn: its output becomes messages. Then start the next waiting turn, if one of `agents` answers it.

    Args:
        turn: The open turn.
        outcome: How it ended.
        bodies: The output since the last checkpoint.
        agents: The agents that this worker serves.
        compact: Open a compaction instead of the next turn, under the same lease; waiting turns follow it.

    Returns:
        The ended turn, and the turn that was opened.

    Raises:
        LeaseLost: The turn is no longer this holder's.
        InvalidPayload: A body is not valid.
        TooLarge: A body is too long.
    """
    check_names("agents", agents)
    check_bodies(bodies)
    then = compaction_turn.begin if compact else partial(lifecycle.start_next, agents=agents)
    return Write(name="finish", owner=turn.owner, verb=lambda tx: lifecycle.finish(tx, turn, bodies, outcome, then))


def rotate(
    session: SessionId,
    summary: Sequence[NewMessage],
    *,
    owner: str,
    parent: WindowId,
    keep_from: int,
    turn: OpenTurn | None = None,
) -> Write[Rotated]:
    """Open the window after `parent`: the summary, then all messages of `parent` from position `keep_from` on.

    Messages that arrived after the summariser read the window are kept. A window is compacted once: the second
    caller gets the current window of the session, with `won=False`.

    Args:
        session: The session.
        summary: The messages that summarise the rest.
        owner: The owner of the session.
        parent: The window that was summarised.
        keep_from: The position of the first message that is kept.
        turn: The open turn, if its holder rotates the session within it.

    Returns:
        The current window of the session.

    Raises:
        NotFound: The owner has no such session.
        LeaseLost: The turn is no longer this holder's.
        SessionBusy: A turn of another holder runs.
        InvalidPayload: The summary or the position is not valid.
    """
    where, before = check_session_id(session), check_window_id(parent)
    return Write(
        name="rotate",
        owner=owner,
        read_first=True,
        verb=lambda tx: branches.rotate(
            tx, where, owner, parent=before, summaries=summary, keep_from=keep_from, turn=turn
        ),
    )


def compact(session: SessionId, *, owner: str, seen: MessagePage | None = None) -> Write[Compacting]:
    """Take the lease for a compaction: a turn without input and agent, to be ended by `finish`.

    Args:
        session: The session.
        owner: The owner of the session.
        seen: The messages by which the caller decided to compact.

    Returns:
        The compaction and its open turn; without one if another worker compacts already.

    Raises:
        NotFound: The owner has no such session.
        NothingToDo: There is nothing to compact.
        SessionBusy: A turn runs.
        HistoryChanged: The session does not read any more as it was `seen`.
        SessionEnded: The session was ended.
        SessionExpired: The session has expired.
    """
    where = check_session_id(session)
    return Write(
        name="compact",
        owner=owner,
        read_first=True,
        registers=True,
        verb=lambda tx: compaction_turn.compact(tx, where, owner, seen),
    )


def _only_words(bodies: Sequence[Body]) -> Words | None:
    """The bodies, if all of them are text and thoughts."""
    words = tuple(body for body in bodies if isinstance(body, Text | Thought))
    return words if len(words) == len(bodies) else None
