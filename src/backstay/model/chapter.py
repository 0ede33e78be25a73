"""A chapter: a stretch of a session's story as it stands at one event, to be shown and to be followed from there."""

import msgspec

from backstay.model.content import Part
from backstay.model.ids import MessageId, SessionId, WindowId
from backstay.model.marks import Marks
from backstay.model.message import Message, NewMessage
from backstay.model.session import Session
from backstay.model.turn import Call, Turn


class Chapter(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one window and all that is known of their turns, read at one moment: after `session.last_event`.

    `turns` are those of the messages and the one that runs, `calls` the tool calls of those turns. `said` is what the
    running turn has said so far, and `unheard` what was said to it meanwhile: it will stand behind the results of the
    calls that are still open. Before the first message of a window stands what its summary stands for: the first
    `behind_until` messages of the window `behind`.
    """

    session: Session
    window: WindowId
    length: int
    messages: tuple[Message, ...]
    turns: tuple[Turn, ...]
    calls: tuple[Call, ...]
    waiting: tuple[Turn, ...]
    said: tuple[NewMessage, ...]
    unheard: tuple[tuple[Part, ...], ...] = ()
    behind: WindowId | None = None
    behind_until: int | None = None


class ChapterQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages: the last ones before a position of a window, or those around a message, wherever it stands."""

    window: WindowId | None = None
    before: int | None = None
    around: MessageId | None = None
    last: int = 100


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """What a list tells its reader of a session besides its line.

    `asks`: a tool call waits for a person. `outcome` is how the last turn ended.
    """

    session: SessionId
    marks: Marks
    asks: bool
    outcome: str | None
