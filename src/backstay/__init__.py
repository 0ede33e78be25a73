"""Backstay: durable sessions for AI agents.

A name is loaded when it is first used, so a program that keeps messages does not wait for the runtime that runs agents,
and a command that lists sessions does not wait for either.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_MODULES = {
    "Address": "model.address",
    "AgentIdentity": "model.address",
    "App": "runtime.app",
    "Attachment": "model.content",
    "BackstayError": "errors",
    "Compaction": "runtime.compaction",
    "Custom": "model.content",
    "Export": "model.export",
    "Message": "model.message",
    "NewMessage": "model.message",
    "Pooling": "runtime.pool",
    "Session": "model.session",
    "Store": "store",
    "Text": "model.content",
    "Thought": "model.content",
    "Timing": "runtime.timing",
    "ToolCall": "model.content",
    "ToolResult": "model.content",
    "Ttl": "model.session",
    "Usage": "model.content",
    "call_off_move": "store.moving.move",
    "current": "runtime.context",
    "live": "agents.adapters",
    "move": "store.moving.move",
    "open_blocking": "runtime.blocking",
    "open_store": "store",
}
_ROOMS = ("agents", "clock", "config", "errors", "model", "runtime", "store")


# A type checker reads the imports above, and tells whoever asks for a name that there is not.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "open":
            found: object = import_module("backstay.runtime.app").open_app
        elif name in _MODULES:
            found = getattr(import_module(f"backstay.{_MODULES[name]}"), name)
        elif name in _ROOMS:
            return import_module(f"backstay.{name}")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return [*globals(), *_ROOMS, *__all__]
