"""Chats that got another id, and topics that are gone: answers to one place are sent to another from then on."""

from backstay.gateways.platform import ChatPlace
from backstay.model.gateways.gateway import OpenGateway
from backstay.runtime.owner_sessions import OwnerSessions
from backstay.store.commands import gateway_commands


async def move_chat(app: OwnerSessions, proof: OpenGateway, old: ChatPlace, new: ChatPlace) -> None:
    """Move the deliveries of a place, and the sessions of its chat if that got another id."""
    chats = (old.chat, new.chat) if old.chat != new.chat else None
    await app.run(gateway_commands.move_destination(proof, old.destination, new.destination, chats=chats))
