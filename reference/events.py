"""Events: the steps of a session's story, as followers and streams see them."""

from typing import get_args

import msgspec

from backstay.model.event import Event, EventBody
from reference.markdown import code, sentence, table, whole

INTRODUCTION = """\
A session's story is a gapless row of events. `turn.events()`, `session.follow()`, `GET /api/sessions/{session}/events`
and the frames named `story` of `GET /api/events` all tell the same ones. In JSON the body's `kind` says which it is;
fields that have their default may be left out. Kinds are added in later versions: skip those you do not know."""

AROUND = """\
## Around every body

What an event is, beside its body:"""

BODIES = """\
## Bodies"""


def page() -> str:
    """The page."""
    around = [[code(field.encode_name), _type(field.type)] for field in msgspec.structs.fields(Event)]
    bodies = [[code(_kind(body)), _fields(body), sentence(body.__doc__)] for body in get_args(EventBody)]
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
