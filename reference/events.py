"""The reference of events: the entries of a session's event log."""

from typing import get_args

import msgspec

from backstay.model.event import Event, EventBody
from reference.markdown import code, prose, table, whole

INTRODUCTION = """\
The event log of a session has no gaps. `turn.events()`, `session.follow()`, `GET /api/sessions/{session}/events` and
the frames named `event` of `GET /api/events` all return the same events. In JSON, `kind` in the body is the type of the
event; fields with their default value may be left out. Later versions add kinds: skip those that you do not know."""

AROUND = """\
## Fields of every event"""

BODIES = """\
## Bodies"""


def page() -> str:
    """The page."""
    around = [[code(field.encode_name), _type(field.type)] for field in msgspec.structs.fields(Event)]
    bodies = [[code(_kind(body)), _fields(body), prose(body.__doc__)] for body in get_args(EventBody)]
    return whole(
        "Events",
        INTRODUCTION,
        AROUND,
        table(["field", "type"], around),
        BODIES,
        table(["kind", "fields", "meaning"], bodies),
    )


def _kind(body: type[msgspec.Struct]) -> str:
    return str(body.__struct_config__.tag)


def _fields(body: type[msgspec.Struct]) -> str:
    return ", ".join(code(field.encode_name) for field in msgspec.structs.fields(body))


def _type(kind: object) -> str:
    if kind is EventBody:
        return "one of the bodies below"
    return code(kind.__name__ if isinstance(kind, type) else str(kind).replace("backstay.model.", ""))
