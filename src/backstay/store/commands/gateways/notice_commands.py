"""Commands of chats: notices with buttons, presses, settings, and which session a chat continues.

Those that write take an `OpenGateway`, and raise `LeaseLost` if another worker polls.
"""

from backstay.errors import InvalidPayload
from backstay.model.addresses.address import Address
from backstay.model.codec import check_name
from backstay.model.gateways.arrival import Arrival, Received
from backstay.model.gateways.delivery import Delivery, PartResult
from backstay.model.gateways.gateway import OpenGateway
from backstay.model.gateways.notice import (
    CallName,
    ChatSettings,
    NewNotice,
    Notice,
    NoticeText,
    OpenQuestion,
    Press,
    Pressed,
    WatchedNotice,
)
from backstay.model.ids import NoticeId, SessionId, check_session_id
from backstay.model.session import SessionInfo
from backstay.store.commands.command import Read, Write
from backstay.store.commands.input_checks import check_address, check_kind, check_limit, check_target
from backstay.store.engine import Transaction
from backstay.store.verbs.gateways import arrivals, chats, notices


def obey(gateway: OpenGateway, arrival: Arrival, *, cursor: str, action: Write[NewNotice]) -> Write[Received]:
    """Store a message that asks for a command, run the command and store its reply, in one transaction.

    A message that was received before changes only the cursor.

    Args:
        gateway: The proof.
        arrival: The message, without parts.
        cursor: The position after it in the platform's list.
        action: The command. It returns the reply.

    Returns:
        Whether the message was received before.

    Raises:
        LeaseLost: Another worker polls.
        InvalidPayload: An argument is not valid.
    """
    check_kind("gateway", gateway, OpenGateway)
    check_kind("arrival", arrival, Arrival)
    check_target(arrival.to)
    if arrival.parts or action.owner != gateway.owner:
        raise InvalidPayload("a command is a message without parts, of the owner of the gateway")

    def act(tx: Transaction) -> None:
        notices.add(tx, gateway, action.verb(tx))

    return Write(
        name="obey", owner=gateway.owner, verb=lambda tx: arrivals.receive(tx, gateway, arrival, cursor, action=act)
    )


def press(gateway: OpenGateway, made: Press, *, cursor: str) -> Write[Pressed]:
    """Store a press of a button with the cursor, and execute its action once, if the person may.

    Args:
        gateway: The proof.
        made: The press.
        cursor: The position after it in the platform's list.

    Returns:
        What became of it.

    Raises:
        LeaseLost: Another worker polls.
        NothingToDo: The action of the button is not possible any more.
        Conflict: The arguments of the call are not the ones that were shown.
        NotFound: The session was deleted.
    """
    check_kind("gateway", gateway, OpenGateway)
    check_kind("press", made, Press)
    return Write(name="press", owner=gateway.owner, verb=lambda tx: notices.press(tx, gateway, made, cursor))


# --- notices --------------------------------------------------------------------------------------------------------


def add_notice(gateway: OpenGateway, new: NewNotice) -> Write[Notice]:
    """Add a notice, unless there is one of its name.

    Args:
        gateway: The proof.
        new: The notice.

    Returns:
        The notice.

    Raises:
        LeaseLost: Another worker polls.
        InvalidPayload: An argument is not valid.
    """
    check_kind("new", new, NewNotice)
    return Write(name="add_notice", owner=gateway.owner, wakes=False, verb=lambda tx: notices.add(tx, gateway, new))


def ask(gateway: OpenGateway, question: NewNotice) -> Write[Notice | None]:
    """Add a question for approval. None: its call does not wait any more, or not with these arguments.

    Args:
        gateway: The proof.
        question: The question.

    Returns:
        The notice.

    Raises:
        LeaseLost: Another worker polls.
    """
    check_kind("question", question, NewNotice)
    return Write(name="ask", owner=gateway.owner, wakes=False, verb=lambda tx: notices.ask(tx, gateway, question))


def revise_notice(
    gateway: OpenGateway, notice: NoticeId, content: NoticeText, *, phase: str, final: bool
) -> Write[Notice | None]:
    """Change the text of a notice. None: it is gone.

    Args:
        gateway: The proof.
        notice: The notice.
        content: Its new text and buttons.
        phase: The state that the text shows.
        final: Whether it never changes again.

    Returns:
        The notice.

    Raises:
        LeaseLost: Another worker polls.
    """
    check_kind("content", content, NoticeText)
    return Write(
        name="revise_notice",
        owner=gateway.owner,
        wakes=False,
        verb=lambda tx: notices.revise(tx, gateway, notice, content, phase, final=final),
    )


def begin_notice(gateway: OpenGateway, notice: NoticeId) -> Write[Notice | None]:
    """Store that a notice is being sent, before it is. None: there is nothing to send.

    Args:
        gateway: The proof.
        notice: The notice.

    Returns:
        The notice to send.

    Raises:
        LeaseLost: Another worker polls.
    """
    return Write(
        name="begin_notice", owner=gateway.owner, wakes=False, verb=lambda tx: notices.begin(tx, gateway, notice)
    )


def finish_notice(
    gateway: OpenGateway, notice: Notice, result: PartResult, *, max_age_seconds: float = 86_400
) -> Write[Notice | None]:
    """Store the result of sending or editing a notice. None: nothing is left to show.

    Args:
        gateway: The proof.
        notice: The notice as it was sent.
        result: What became of it.
        max_age_seconds: A notice that could not be sent for so long is given up.

    Returns:
        The notice.

    Raises:
        LeaseLost: Another worker polls.
    """
    age = round(max_age_seconds * 1000)
    return Write(
        name="finish_notice",
        owner=gateway.owner,
        wakes=False,
        verb=lambda tx: notices.finish(tx, gateway, notice, result, age),
    )


def due_notices(
    gateway: str, *, owner: str, after: NoticeId | None = None, limit: int = 100
) -> Read[tuple[Notice, ...]]:
    """Read the notices whose latest version the chats do not show yet.

    Args:
        gateway: The name of the gateway.
        owner: Its owner.
        after: Only notices after this one.
        limit: How many are read at most.

    Returns:
        The notices, oldest first.
    """
    most = check_limit(limit)
    return Read(
        name="due_notices",
        owner=owner,
        snapshot=False,
        verb=lambda tx: notices.due(tx, owner, gateway, after or "", most),
    )


def watched_notices(gateway: str, *, owner: str) -> Read[tuple[WatchedNotice, ...]]:
    """Read the notices that may still change, with the state of their subjects.

    Args:
        gateway: The name of the gateway.
        owner: Its owner.

    Returns:
        The notices, oldest first.
    """
    return Read(
        name="watched_notices", owner=owner, snapshot=False, verb=lambda tx: notices.watched(tx, owner, gateway)
    )


def unasked_calls(gateway: str, *, owner: str, limit: int = 100) -> Read[tuple[OpenQuestion, ...]]:
    """Read the tool calls that wait for a decision, for each chat that shows their session and was not asked.

    Args:
        gateway: The name of the gateway.
        owner: Its owner.
        limit: How many are read at most.

    Returns:
        The questions.
    """
    most = check_limit(limit)
    return Read(name="unasked_calls", owner=owner, verb=lambda tx: notices.unasked(tx, owner, gateway, most))


def undecided_calls(gateway: str, session: SessionId, *, owner: str) -> Read[tuple[OpenQuestion, ...]]:
    """Read the tool calls of a session that wait for a decision.

    Args:
        gateway: The name of the gateway.
        session: The session.
        owner: Its owner.

    Returns:
        The questions; their destination is empty.

    Raises:
        NotFound: The owner has no such session.
    """
    where = check_session_id(session)
    return Read(name="undecided_calls", owner=owner, verb=lambda tx: notices.undecided(tx, owner, gateway, where))


def decide_call(gateway: OpenGateway, call: CallName, *, approved: bool) -> Write[None]:
    """Decide on a tool call, with the arguments that were shown.

    Args:
        gateway: The proof.
        call: The call.
        approved: Whether it may run.

    Returns:
        Nothing.

    Raises:
        LeaseLost: Another worker polls.
        NothingToDo: The call is not waiting for a decision.
        Conflict: The arguments of the call are not the ones that were shown.
    """
    return Write(
        name="decide_call",
        owner=gateway.owner,
        verb=lambda tx: notices.decide(tx, gateway, call, approved=approved),
    )


# --- chats ----------------------------------------------------------------------------------------------------------


def chat_settings(gateway: str, destination: str, *, owner: str) -> Read[ChatSettings]:
    """Read the settings of a chat.

    Args:
        gateway: The name of the gateway.
        destination: The chat.
        owner: The owner of the gateway.

    Returns:
        The settings.
    """
    return Read(
        name="chat_settings",
        owner=owner,
        snapshot=False,
        verb=lambda tx: chats.settings(tx, owner, gateway, destination),
    )


def choose_settings(gateway: OpenGateway, destination: str, chosen: ChatSettings) -> Write[ChatSettings]:
    """Store the settings of a chat.

    Args:
        gateway: The proof.
        destination: The chat.
        chosen: Its settings.

    Returns:
        The settings.

    Raises:
        LeaseLost: Another worker polls.
        UnknownAgent: No process serves or has served the agent.
        InvalidPayload: An argument is not valid.
    """
    check_kind("chosen", chosen, ChatSettings)
    return Write(
        name="choose_settings",
        owner=gateway.owner,
        wakes=False,
        verb=lambda tx: chats.choose(tx, gateway, _destination(tx, destination), chosen),
    )


def show_session(gateway: OpenGateway, address: Address, destination: str, session: SessionId) -> Write[SessionInfo]:
    """Point the address of a chat to a session, and show its answers there.

    Args:
        gateway: The proof.
        address: The address.
        destination: Where answers are sent. The session before is shown there until it is idle.
        session: The session.

    Returns:
        The session.

    Raises:
        LeaseLost: Another worker polls.
        NotFound: The owner has no such session.
        SessionEnded: The session was ended.
        SessionExpired: The session has expired.
        QuotaExceeded: The owner has reached its limit of stored bytes.
    """
    where, here = check_session_id(session), check_address(address)
    return Write(
        name="show_session",
        owner=gateway.owner,
        verb=lambda tx: chats.show_session(tx, gateway, here, _destination(tx, destination), where),
    )


def fork_here(gateway: OpenGateway, address: Address, destination: str, session: SessionId) -> Write[SessionInfo]:
    """Fork a session, and let a chat continue the fork.

    Args:
        gateway: The proof.
        address: The address of the chat.
        destination: Where answers are sent.
        session: The session to fork.

    Returns:
        The fork.

    Raises:
        LeaseLost: Another worker polls.
        NotFound: The owner has no such session.
        QuotaExceeded: The owner has reached its limit of sessions.
    """
    where, here = check_session_id(session), check_address(address)
    return Write(
        name="fork_here",
        owner=gateway.owner,
        verb=lambda tx: chats.fork_here(tx, gateway, here, _destination(tx, destination), where),
    )


def mirror_session(gateway: OpenGateway, destination: str, session: SessionId) -> Write[SessionInfo]:
    """Show the answers of a session in a chat that continues another one.

    Args:
        gateway: The proof.
        destination: The chat.
        session: The session.

    Returns:
        The session.

    Raises:
        LeaseLost: Another worker polls.
        NotFound: The owner has no such session.
    """
    where = check_session_id(session)
    return Write(
        name="mirror_session",
        owner=gateway.owner,
        wakes=False,
        verb=lambda tx: chats.mirror(tx, gateway, _destination(tx, destination), where),
    )


def stop_mirrors(gateway: OpenGateway, address: Address, destination: str) -> Write[int]:
    """Show only the session that a chat continues.

    Args:
        gateway: The proof.
        address: The address of the chat.
        destination: The chat.

    Returns:
        How many sessions are not shown any more.

    Raises:
        LeaseLost: Another worker polls.
        NothingToDo: It shows no other session.
    """
    here = check_address(address)
    return Write(
        name="stop_mirrors",
        owner=gateway.owner,
        wakes=False,
        verb=lambda tx: chats.stop_mirrors(tx, gateway, here, _destination(tx, destination)),
    )


def shown_in(gateway: str, destination: str, *, owner: str) -> Read[tuple[Delivery, ...]]:
    """Read which sessions are shown in a chat.

    Args:
        gateway: The name of the gateway.
        destination: The chat.
        owner: The owner of the gateway.

    Returns:
        The deliveries.
    """
    return Read(
        name="shown_in",
        owner=owner,
        snapshot=False,
        verb=lambda tx: chats.mirrors(tx, owner, gateway, destination),
    )


def known_agents(*, owner: str) -> Read[tuple[str, ...]]:
    """Read the names of the agents that are served, or were.

    Args:
        owner: The owner who asks. Agents are those of the store.

    Returns:
        The names, sorted.
    """
    return Read(name="known_agents", owner=owner, snapshot=False, verb=chats.known_agents)


def _destination(tx: Transaction, destination: str) -> str:
    return check_name("the destination", destination, tx.limits.name_bytes)
