"""Backstay: durable sessions for AI agents."""

from backstay.errors import BackstayError
from backstay.model.address import Address, AgentIdentity
from backstay.model.content import Attachment, Custom, Text, Thought, ToolCall, ToolResult, Usage
from backstay.model.message import Message, NewMessage
from backstay.model.session import Session, Ttl
from backstay.store import Store, open_store

__all__ = [
    "Address",
    "AgentIdentity",
    "Attachment",
    "BackstayError",
    "Custom",
    "Message",
    "NewMessage",
    "Session",
    "Store",
    "Text",
    "Thought",
    "ToolCall",
    "ToolResult",
    "Ttl",
    "Usage",
    "open_store",
]
