"""Information about the server: its agents and how they were selected, retention times, limits."""

import msgspec

from backstay.server.http.api_request import ApiRequest, ApiResponse, NoInput
from backstay.server.http.operation import AnyOperation, Operation
from backstay.server.server_state import ServerInfo


class ServerAbout(msgspec.Struct, frozen=True, kw_only=True):
    """Information about the server for the web UI. 0 seconds or days mean never."""

    facts: ServerInfo
    owner: str
    demo: bool
    keep_closed_days: float
    fold_seconds: float
    compact_tokens: int
    body_bytes: int
    import_bytes: int
    https: bool


async def read_about(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Return information about this server."""
    settings = call.service.settings
    return ApiResponse(
        value=ServerAbout(
            facts=call.service.info.for_caller(call.caller),
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
        summary="Get the agents of this server, how they were chosen, the retention times and the limits.",
        run=read_about,
        body=NoInput,
        query=NoInput,
        answer=ServerAbout,
    ),
)
