"""`POST /hooks/NAME`: accepts a signed message of another program.

The order matters: size, then signature, then time, and only then the body and the store. An unsigned request reveals
nothing, not even which names exist, and costs no read of the database.
"""

from collections.abc import Mapping

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from backstay.clock import Clock, SystemClock
from backstay.errors import BackstayError
from backstay.model.ids import SessionId, TurnId
from backstay.server.http.endpoint import read_body
from backstay.server.http.problems import too_large
from backstay.server.server_state import ServerState
from backstay.server.telemetry.logs import log
from backstay.server.webhooks.incoming_message import IncomingHook, stand_in


class HookAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The message is durable. `repeated`: it was accepted before, and this is its turn."""

    turn: TurnId
    session: SessionId
    repeated: bool


class HookEndpoint:
    """All incoming webhooks of a server."""

    def __init__(self, service: ServerState, hooks: Mapping[str, IncomingHook], clock: Clock | None = None) -> None:
        self._service, self._hooks, self._clock = service, hooks, clock or SystemClock()
        self._unknown = stand_in()
        # One limit before the signature is checked: it must not tell one name from another.
        self._most_bytes = max((hook.hook.body_bytes for hook in hooks.values()), default=self._unknown.hook.body_bytes)

    async def answer(self, request: Request) -> Response:
        """Answer a request."""
        request.scope["operation"] = "hook"
        try:
            return await self._accept(request)
        except ClientDisconnect:
            return Response(status_code=400)
        except BackstayError as error:
            log.info("webhook refused", extra={"hook": request.path_params["name"][:64], "error": str(error)})
            return self._service.error_responses.for_error(error, request.url.path)

    async def _accept(self, request: Request) -> Response:
        hook = self._hooks.get(request.path_params["name"], self._unknown)
        body = await read_body(request, self._most_bytes, self._service.settings.body_seconds)
        signed = hook.verify(request.headers, body, self._clock.now() / 1000)
        if len(body) > hook.hook.body_bytes:
            raise too_large(hook.hook.body_bytes)
        message = hook.message(signed, body)
        turn = await self._service.app.owned_by(hook.hook.owner or self._service.settings.owner).send(
            message.to,
            message.text,
            agent=hook.hook.agent or None,
            request_id=message.request_id,
            if_busy=hook.hook.if_busy,
        )
        answer = HookAnswer(turn=turn.id, session=turn.session, repeated=turn.repeated)
        return Response(msgspec.json.encode(answer), 202, media_type="application/json")
