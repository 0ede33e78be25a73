"""The reference of events: the entries of a session's event log."""

from typing import get_args

import msgspec

from backstay.model.event import Event, EventBody
from backstay.server.http.docstrings import parse
from reference.markdown import code, prose, table, type_name, whole

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
    meanings = {name: text for section in parse(Event.__doc__).sections for name, text in section.entries.items()}
    around = [
        [code(field.encode_name), _type(field.type), meanings[field.name]] for field in msgspec.structs.fields(Event)
    ]
    bodies = [[code(_kind(body)), _fields(body), prose(body.__doc__)] for body in get_args(EventBody)]
    return whole(
        "Events",
        INTRODUCTION,
        AROUND,
        table(["field", "type", "meaning"], around),
        BODIES,
        table(["kind", "fields", "meaning"], bodies),
    )


def _kind(body: type[msgspec.Struct]) -> str:
    return str(body.__struct_config__.tag)


def _fields(body: type[msgspec.Struct]) -> str:
    return ", ".join(code(field.encode_name) for field in msgspec.structs.fields(body))


def _type(kind: object) -> str:
    return "one of the bodies below" if kind is EventBody else code(type_name(kind))
