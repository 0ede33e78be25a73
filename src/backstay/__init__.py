"""Backstay: durable sessions for AI agents."""

from backstay.errors import BackstayError
from backstay.model.address import Address, AgentIdentity
from backstay.model.content import Attachment, Custom, Text, Thought, ToolCall, ToolResult, Usage
from backstay.model.message import Message, NewMessage
from backstay.model.session import Session, Ttl
from backstay.runtime.app import App
from backstay.runtime.app import open_app as open  # noqa: A004  # `backstay.open` is how people say it
from backstay.runtime.blocking import open_blocking
from backstay.runtime.context import current
from backstay.runtime.timing import Timing
from backstay.store import Store, open_store

__all__ = [
    "Address",
    "AgentIdentity",
    "App",
    "Attachment",
    "BackstayError",
    "Custom",
    "Message",
    "NewMessage",
    "Session",
    "Store",
    "Text",
    "Thought",
    "Timing",
    "ToolCall",
    "ToolResult",
    "Ttl",
    "Usage",
    "current",
    "open",
    "open_blocking",
    "open_store",
]
