"""Backstay: durable sessions for AI agents."""

from backstay.agents.adapters import live
from backstay.errors import BackstayError
from backstay.model.address import Address, AgentIdentity
from backstay.model.content import Attachment, Custom, Text, Thought, ToolCall, ToolResult, Usage
from backstay.model.export import Export
from backstay.model.message import Message, NewMessage
from backstay.model.session import Session, Ttl
from backstay.runtime.app import App
from backstay.runtime.app import open_app as open  # noqa: A004  # `backstay.open` is how people say it
from backstay.runtime.blocking import open_blocking
from backstay.runtime.compaction import Compaction
from backstay.runtime.context import current
from backstay.runtime.pool import Pooling
from backstay.runtime.timing import Timing
from backstay.store import Store, open_store
from backstay.store.moving.move import call_off_move, move

__all__ = [
    "Address",
    "AgentIdentity",
    "App",
    "Attachment",
    "BackstayError",
    "Compaction",
    "Custom",
    "Export",
    "Message",
    "NewMessage",
    "Pooling",
    "Session",
    "Store",
    "Text",
    "Thought",
    "Timing",
    "ToolCall",
    "ToolResult",
    "Ttl",
    "Usage",
    "call_off_move",
    "current",
    "live",
    "move",
    "open",
    "open_blocking",
    "open_store",
]
