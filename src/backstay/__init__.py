"""Backstay: durable sessions for AI agents.

A name is imported on first use. A program that only stores messages does not load the runtime that runs agents, and a
command that lists sessions loads neither.
"""

from typing import TYPE_CHECKING

from backstay.lazy_import import lazy_import

if TYPE_CHECKING:
    from backstay.agents.adapters import live
    from backstay.client.blocking_client import BlockingClient, connect_blocking
    from backstay.client.client import Client, connect
    from backstay.errors import BackstayError
    from backstay.handles import (
        AppLike,
        BlockingAppLike,
        BlockingSessionLike,
        BlockingTurnLike,
        SessionLike,
        TurnLike,
    )
    from backstay.model.addresses.address import Address, AgentIdentity
    from backstay.model.content import Attachment, Custom, Text, Thought, ToolCall, ToolResult, Usage
    from backstay.model.documents.document import Export
    from backstay.model.ids import MessageId, SessionId, TurnId, WindowId
    from backstay.model.limits import Limits
    from backstay.model.message import Message, NewMessage
    from backstay.model.session import SessionFilter, SessionInfo, SessionPatch, Ttl
    from backstay.model.turn import (
        Cancelled,
        Completed,
        Failed,
        Interrupted,
        OpenTurn,
        Outcome,
        ToolCallRecord,
        TurnInfo,
    )
    from backstay.runtime.app import App, open_app
    from backstay.runtime.blocking import BlockingApp, BlockingSession, BlockingTurn, open_blocking
    from backstay.runtime.compaction.policy import Compaction
    from backstay.runtime.current_turn import current
    from backstay.runtime.observer import Observer
    from backstay.runtime.owner_limits import OwnerLimits
    from backstay.runtime.owner_sessions import OwnerSessions
    from backstay.runtime.session_handle import Session
    from backstay.runtime.timing import Timing
    from backstay.runtime.turn_handle import Turn
    from backstay.runtime.turns.agent_pool import Pooling
    from backstay.store import Store, open_store
    from backstay.store.move.move_store import call_off_move, move

    open = open_app  # noqa: A001  # `backstay.open` is the public name

# Without `open`: `from backstay import *` must not replace the builtin.
__all__ = [
    "Address",
    "AgentIdentity",
    "App",
    "AppLike",
    "Attachment",
    "BackstayError",
    "BlockingApp",
    "BlockingAppLike",
    "BlockingClient",
    "BlockingSession",
    "BlockingSessionLike",
    "BlockingTurn",
    "BlockingTurnLike",
    "Cancelled",
    "Client",
    "Compaction",
    "Completed",
    "Custom",
    "Export",
    "Failed",
    "Interrupted",
    "Limits",
    "Message",
    "MessageId",
    "NewMessage",
    "Observer",
    "OpenTurn",
    "Outcome",
    "OwnerLimits",
    "OwnerSessions",
    "Pooling",
    "Session",
    "SessionFilter",
    "SessionId",
    "SessionInfo",
    "SessionLike",
    "SessionPatch",
    "Store",
    "Text",
    "Thought",
    "Timing",
    "ToolCall",
    "ToolCallRecord",
    "ToolResult",
    "Ttl",
    "Turn",
    "TurnId",
    "TurnInfo",
    "TurnLike",
    "Usage",
    "WindowId",
    "call_off_move",
    "connect",
    "connect_blocking",
    "current",
    "live",
    "move",
    "open_blocking",
    "open_store",
]

# Type checkers use the imports above. Without this guard they would accept every attribute.
if not TYPE_CHECKING:
    _PLACES = {
        "Address": "model.addresses.address",
        "AgentIdentity": "model.addresses.address",
        "App": "runtime.app",
        "AppLike": "handles",
        "Attachment": "model.content",
        "BackstayError": "errors",
        "BlockingApp": "runtime.blocking",
        "BlockingAppLike": "handles",
        "BlockingClient": "client.blocking_client",
        "BlockingSession": "runtime.blocking",
        "BlockingSessionLike": "handles",
        "BlockingTurn": "runtime.blocking",
        "BlockingTurnLike": "handles",
        "Cancelled": "model.turn",
        "Client": "client.client",
        "Compaction": "runtime.compaction.policy",
        "Completed": "model.turn",
        "Custom": "model.content",
        "Export": "model.documents.document",
        "Failed": "model.turn",
        "Interrupted": "model.turn",
        "Limits": "model.limits",
        "Message": "model.message",
        "MessageId": "model.ids",
        "NewMessage": "model.message",
        "Observer": "runtime.observer",
        "OpenTurn": "model.turn",
        "Outcome": "model.turn",
        "OwnerLimits": "runtime.owner_limits",
        "OwnerSessions": "runtime.owner_sessions",
        "Pooling": "runtime.turns.agent_pool",
        "Session": "runtime.session_handle",
        "SessionFilter": "model.session",
        "SessionId": "model.ids",
        "SessionInfo": "model.session",
        "SessionPatch": "model.session",
        "SessionLike": "handles",
        "Store": "store",
        "Text": "model.content",
        "Thought": "model.content",
        "Timing": "runtime.timing",
        "ToolCall": "model.content",
        "ToolCallRecord": "model.turn",
        "ToolResult": "model.content",
        "Ttl": "model.session",
        "Turn": "runtime.turn_handle",
        "TurnId": "model.ids",
        "TurnInfo": "model.turn",
        "TurnLike": "handles",
        "Usage": "model.content",
        "WindowId": "model.ids",
        "call_off_move": "store.move.move_store",
        "connect": "client.client",
        "connect_blocking": "client.blocking_client",
        "current": "runtime.current_turn",
        "live": "agents.adapters",
        "move": "store.move.move_store",
        "open": "runtime.app:open_app",
        "open_blocking": "runtime.blocking",
        "open_store": "store",
        "agents": "agents:",
        "clock": "clock:",
        "commands": "commands:",
        "config": "config:",
        "errors": "errors:",
        "events": "events:",
        "model": "model:",
        "runtime": "runtime:",
        "store": "store:",
        "testing": "testing:",
    }
    __getattr__ = lazy_import(__name__, _PLACES)

    def __dir__() -> list[str]:
        return [*globals(), *_PLACES]
