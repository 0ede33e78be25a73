"""Answers the requests of an ACP agent for permission to use its tools. Permission is never given by default."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Literal, get_args

from acp.schema import AllowedOutcome, DeniedOutcome, PermissionOption
from acp.schema import RequestPermissionRequest as Request
from acp.schema import RequestPermissionResponse as Response

from backstay.agents.port import AgentTurn
from backstay.agents.tools import Tool
from backstay.errors import BackstayError, ConfigError
from backstay.model.content import Json

log = logging.getLogger("backstay.agents.acp")

# "ask": a person decides each time. "allow", "deny": the operator who set up the agent has decided.
Policy = Literal["ask", "allow", "deny"]
POLICIES: tuple[Policy, ...] = get_args(Policy)


def check_policy(policy: object) -> Policy:
    """Return the policy; raise `ConfigError` if it is not one."""
    for known in POLICIES:
        if policy == known:
            return known
    raise ConfigError(f"{policy!r} is not a valid permission", hint="Use 'ask', 'allow' or 'deny'.")


class PendingPermissions:
    """The permission requests of one turn, each answered by a task of its own, so that no decision blocks another."""

    def __init__(self, turn: AgentTurn, policy: Policy) -> None:
        self._turn, self._policy = turn, policy
        self._tasks: set[asyncio.Task[None]] = set()
        # The ids, in the events, of the calls that were not permitted.
        self.denied: list[str] = []

    def ask(self, request: Request, about: dict[str, Json], answer: "asyncio.Future[Response]") -> None:
        """Start to decide a request and answer it. `about` has the details of the call, and its id as `call`."""
        self._tasks.add(asyncio.create_task(self._decide(request, about, answer), name="permission"))

    async def drop(self) -> None:
        """Cancel the open requests, because the turn is over, and wait until their tasks have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _decide(self, request: Request, about: dict[str, Json], answer: "asyncio.Future[Response]") -> None:
        granted = await self._is_granted(request, about)
        if not granted:
            self.denied.append(about["call"])
        option = _chosen(request.options, ("allow_once", "allow_always") if granted else ("reject_once",))
        if not answer.done():
            answer.set_result(_response(option))

    async def _is_granted(self, request: Request, about: dict[str, Json]) -> bool:
        """Decide through the ledger: the request is stored before a person is asked, the answer before it takes effect.

        The turn's id is among the arguments, so that a turn that resumes another asks again.
        """
        # A person permits one call only. A lasting permission needs the policy "allow".
        lasting = _chosen(request.options, ("allow_once",)) is None
        if self._policy == "deny" or (self._policy == "ask" and lasting):
            return False
        tool = _ASKED if self._policy == "ask" else _GIVEN
        try:
            await self._turn.call(tool, about | {"turn": self._turn.id})
        except BackstayError as error:
            # Denied, or the request could not be made: then the call is not permitted.
            log.debug("permission was not given", extra={"turn": self._turn.id, "reason": str(error)})
            return False
        except Exception:
            # Unexpected. The program waits for an answer in any case, and permission is never given by default.
            log.warning("permission could not be decided", extra={"turn": self._turn.id}, exc_info=True)
            return False
        return True


def _chosen(options: Sequence[PermissionOption], kinds: Sequence[str]) -> PermissionOption | None:
    return next((option for kind in kinds for option in options if option.kind == kind), None)


def _response(option: PermissionOption | None) -> Response:
    if option is None:
        return Response(outcome=DeniedOutcome(outcome="cancelled"))
    return Response(outcome=AllowedOutcome(outcome="selected", option_id=option.option_id))


async def _permitted(**arguments: Json) -> str:
    return f"{arguments['call']} is permitted once"


_ASKED = Tool(
    name="permission",
    function=_permitted,
    description="Lets the agent use one of its own tools, this once.",
    approval=True,
)
_GIVEN = Tool(
    name="permission",
    function=_permitted,
    description="Lets the agent use one of its own tools. Permission was given in advance.",
)
