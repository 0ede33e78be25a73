"""About the server: who answers and why, what is kept for how long, what may be sent."""

import msgspec

from backstay.server.call import Answer, Call, Nothing
from backstay.server.operation import AnyOperation, Operation
from backstay.server.service import Facts


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a page must know of its server. Seconds and days of 0 mean never."""

    facts: Facts
    owner: str
    demo: bool
    keep_closed_days: float
    fold_seconds: float
    compact_tokens: int
    body_bytes: int
    import_bytes: int
    https: bool


async def read_about(call: Call[Nothing, Nothing]) -> Answer:
    """What runs here."""
    settings = call.service.settings
    return Answer(
        value=About(
            facts=call.service.facts,
            owner=call.caller.owner,
            demo=settings.demo,
            keep_closed_days=settings.keep_closed_days,
            fold_seconds=settings.fold_seconds,
            compact_tokens=settings.compact_tokens,
            body_bytes=settings.body_bytes,
            import_bytes=settings.import_bytes,
            https=settings.https,
        )
    )


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/api/about",
        name="read_about",
        summary="Who answers here and why, what is kept for how long, and what may be sent.",
        run=read_about,
        body=Nothing,
        query=Nothing,
        answer=About,
    ),
)
