"""Chats: their settings, and which session they continue."""

import msgspec

from backstay.errors import NothingToDo
from backstay.model.addresses.address import Address
from backstay.model.gateways.delivery import Delivery
from backstay.model.gateways.gateway import OpenGateway
from backstay.model.gateways.notice import ChatSettings
from backstay.model.ids import SessionId
from backstay.model.session import SessionInfo
from backstay.model.turn import IfBusy
from backstay.store.engine import Transaction
from backstay.store.rows import Rows, values
from backstay.store.session_row import find
from backstay.store.verbs import agent_registry, session_changes
from backstay.store.verbs.gateways import deliveries, gateway_row
from backstay.store.verbs.history import branches


class _SettingsRow(msgspec.Struct):
    """The settings of a chat, as they are stored."""

    agent: str | None
    if_busy: IfBusy | None


_SETTINGS = Rows("chat_settings", _SettingsRow)


def settings(tx: Transaction, owner: str, gateway: str, destination: str) -> ChatSettings:
    """The settings of a chat."""
    row = _SETTINGS.one(tx, owner=owner, gateway=gateway, destination=destination)
    return ChatSettings() if row is None else ChatSettings(agent=row.agent, if_busy=row.if_busy)


def choose(tx: Transaction, proof: OpenGateway, destination: str, chosen: ChatSettings) -> ChatSettings:
    """Store the settings of a chat. An agent that no process serves or has served is refused."""
    gateway_row.lock(tx, proof)
    if chosen.agent is not None:
        agent_registry.check_served(tx, agent_registry.check_agent_name(tx, chosen.agent))
    tx.run(
        "set_chat",
        owner=proof.owner,
        gateway=proof.name,
        destination=destination,
        agent=chosen.agent,
        if_busy=chosen.if_busy,
    )
    return chosen


def known_agents(tx: Transaction) -> tuple[str, ...]:
    """The agents that are served, or were."""
    return tuple(values(tx, "served_agents"))


def show_session(
    tx: Transaction, proof: OpenGateway, address: Address, destination: str, session: SessionId
) -> SessionInfo:
    """Point the address of a chat to a session, whose answers it shows; the one before is shown until it is idle."""
    gateway_row.lock(tx, proof)
    here = address.on(tx.host)
    before = session_changes.ADDRESS.one(tx, owner=proof.owner, key=bytes.fromhex(here.key))
    found = session_changes.point(tx, here, session, proof.owner)
    if before is not None and before.session != session:
        deliveries.leave_when_idle(tx, proof, destination, before.session)
    deliveries.bind(tx, proof, destination, session, found.last_event)
    return found


def fork_here(
    tx: Transaction, proof: OpenGateway, address: Address, destination: str, session: SessionId
) -> SessionInfo:
    """Fork a session, and let the chat continue the fork."""
    gateway_row.lock(tx, proof)
    forked = branches.fork(tx, session, proof.owner, None, None)
    return show_session(tx, proof, address, destination, forked.id)


def mirrors(tx: Transaction, owner: str, gateway: str, destination: str) -> tuple[Delivery, ...]:
    """The deliveries that a chat shows."""
    return deliveries.of_destination(tx, owner, gateway, destination)


def stop_mirrors(tx: Transaction, proof: OpenGateway, address: Address, destination: str) -> int:
    """End the deliveries to a chat, except of the session that it continues. Returns how many there were."""
    gateway_row.lock(tx, proof)
    kept = session_changes.ADDRESS.one(tx, owner=proof.owner, key=bytes.fromhex(address.on(tx.host).key))
    count = 0
    for delivery in deliveries.of_destination(tx, proof.owner, proof.name, destination):
        if kept is None or delivery.session != kept.session:
            deliveries.leave_when_idle(tx, proof, destination, delivery.session)
            count += not delivery.closing
    if not count:
        raise NothingToDo("this chat mirrors no session")
    return count


def mirror(tx: Transaction, proof: OpenGateway, destination: str, session: SessionId) -> SessionInfo:
    """Show the answers of a session in a chat, too."""
    deliveries.follow(tx, proof, destination, session)
    return find(tx, session, proof.owner).value(tx.now)
