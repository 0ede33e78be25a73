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
    from backstay.model.content import (
        Attachment,
        Body,
        Content,
        Custom,
        Part,
        Text,
        Thought,
        ToolCall,
        ToolResult,
        Usage,
    )
    from backstay.model.documents.document import Export, Imported
    from backstay.model.files.file_source import FileSource
    from backstay.model.history.chat_messages import MessageLike
    from backstay.model.ids import MessageId, SessionId, TurnId, WindowId
    from backstay.model.limits import Limits
    from backstay.model.marks import Marks
    from backstay.model.message import Message, NewMessage
    from backstay.model.operations.store_info import Load
    from backstay.model.schedules.schedule import Schedule, ScheduleEntry
    from backstay.model.search.results import SearchHit, SearchPage
    from backstay.model.search.snippet import Snippet
    from backstay.model.session import (
        Collected,
        Deleted,
        Resolved,
        SessionCursor,
        SessionFilter,
        SessionInfo,
        SessionPage,
        SessionPatch,
        Ttl,
        UpkeepReport,
    )
    from backstay.model.token import Token
    from backstay.model.turn import (
        Cancelled,
        Completed,
        Failed,
        IfBusy,
        Interrupted,
        OpenTurn,
        Outcome,
        Recorded,
        SendOptions,
        ToolCallRecord,
        TurnInfo,
    )
    from backstay.model.window import Moved, Window
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
    from backstay.runtime.turns.agent_pool import Pool, Pooling, PoolStatistics
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
    "Body",
    "Cancelled",
    "Client",
    "Collected",
    "Compaction",
    "Completed",
    "Content",
    "Custom",
    "Deleted",
    "Export",
    "Failed",
    "FileSource",
    "IfBusy",
    "Imported",
    "Interrupted",
    "Limits",
    "Load",
    "Marks",
    "Message",
    "MessageId",
    "MessageLike",
    "Moved",
    "NewMessage",
    "Observer",
    "OpenTurn",
    "Outcome",
    "OwnerLimits",
    "OwnerSessions",
    "Part",
    "Pool",
    "PoolStatistics",
    "Pooling",
    "Recorded",
    "Resolved",
    "Schedule",
    "ScheduleEntry",
    "SearchHit",
    "SearchPage",
    "SendOptions",
    "Session",
    "SessionCursor",
    "SessionFilter",
    "SessionId",
    "SessionInfo",
    "SessionLike",
    "SessionPage",
    "SessionPatch",
    "Snippet",
    "Store",
    "Text",
    "Thought",
    "Timing",
    "Token",
    "ToolCall",
    "ToolCallRecord",
    "ToolResult",
    "Ttl",
    "Turn",
    "TurnId",
    "TurnInfo",
    "TurnLike",
    "UpkeepReport",
    "Usage",
    "Window",
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
        "Body": "model.content",
        "Cancelled": "model.turn",
        "Client": "client.client",
        "Collected": "model.session",
        "Compaction": "runtime.compaction.policy",
        "Completed": "model.turn",
        "Content": "model.content",
        "Custom": "model.content",
        "Deleted": "model.session",
        "Export": "model.documents.document",
        "Failed": "model.turn",
        "FileSource": "model.files.file_source",
        "IfBusy": "model.turn",
        "Imported": "model.documents.document",
        "Interrupted": "model.turn",
        "Limits": "model.limits",
        "Load": "model.operations.store_info",
        "Marks": "model.marks",
        "Message": "model.message",
        "MessageId": "model.ids",
        "MessageLike": "model.history.chat_messages",
        "Moved": "model.window",
        "NewMessage": "model.message",
        "Observer": "runtime.observer",
        "OpenTurn": "model.turn",
        "Outcome": "model.turn",
        "OwnerLimits": "runtime.owner_limits",
        "OwnerSessions": "runtime.owner_sessions",
        "Part": "model.content",
        "Pool": "runtime.turns.agent_pool",
        "PoolStatistics": "runtime.turns.agent_pool",
        "Pooling": "runtime.turns.agent_pool",
        "Recorded": "model.turn",
        "Resolved": "model.session",
        "Schedule": "model.schedules.schedule",
        "ScheduleEntry": "model.schedules.schedule",
        "SearchHit": "model.search.results",
        "SearchPage": "model.search.results",
        "SendOptions": "model.turn",
        "Session": "runtime.session_handle",
        "SessionCursor": "model.session",
        "SessionFilter": "model.session",
        "SessionId": "model.ids",
        "SessionInfo": "model.session",
        "SessionPatch": "model.session",
        "SessionLike": "handles",
        "SessionPage": "model.session",
        "Snippet": "model.search.snippet",
        "Store": "store",
        "Text": "model.content",
        "Thought": "model.content",
        "UpkeepReport": "model.session",
        "Timing": "runtime.timing",
        "Token": "model.token",
        "ToolCall": "model.content",
        "ToolCallRecord": "model.turn",
        "ToolResult": "model.content",
        "Ttl": "model.session",
        "Turn": "runtime.turn_handle",
        "TurnId": "model.ids",
        "TurnInfo": "model.turn",
        "TurnLike": "handles",
        "Usage": "model.content",
        "Window": "model.window",
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
