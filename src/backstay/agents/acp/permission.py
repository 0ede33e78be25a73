"""Permission: what an agent is answered when it asks whether it may use one of its tools. Never granted unasked."""

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

# A person is asked each time; or the answer was given once and for all by whoever chose the agent.
Policy = Literal["ask", "allow", "deny"]
POLICIES: tuple[Policy, ...] = get_args(Policy)


def check_policy(policy: object) -> Policy:
    """The same policy, or a refusal."""
    for known in POLICIES:
        if policy == known:
            return known
    raise ConfigError(f"{policy!r} is no answer to a question for permission", hint="Use 'ask', 'allow' or 'deny'.")


class Questions:
    """The questions of one turn, each answered by a task of its own: whoever decides holds up nothing else."""

    def __init__(self, turn: AgentTurn, policy: Policy) -> None:
        self._turn, self._policy = turn, policy
        self._tasks: set[asyncio.Task[None]] = set()
        # The calls that were not permitted, as the story names them.
        self.denied: list[str] = []

    def ask(self, request: Request, about: dict[str, Json], answer: "asyncio.Future[Response]") -> None:
        """Have the question decided, and then answered. `about` says what it is about, and which `call`."""
        self._tasks.add(asyncio.create_task(self._decide(request, about, answer), name="permission"))

    def drop(self) -> None:
        """Nobody waits for an answer any more."""
        for task in self._tasks:
            task.cancel()

    async def _decide(self, request: Request, about: dict[str, Json], answer: "asyncio.Future[Response]") -> None:
        granted = await self._is_granted(request, about)
        if not granted:
            self.denied.append(about["call"])
        option = _chosen(request.options, ("allow_once", "allow_always") if granted else ("reject_once",))
        if not answer.done():
            answer.set_result(_response(option))

    async def _is_granted(self, request: Request, about: dict[str, Json]) -> bool:
        """Decide through the ledger: what is asked for is stored before anybody is asked, the answer before it counts.

        The turn's id is among the arguments, so that a turn that goes on for another asks anew.
        """
        # What a person agrees to is this once; a lasting permission is given only by who chose the agent.
        lasting = _chosen(request.options, ("allow_once",)) is None
        if self._policy == "deny" or (self._policy == "ask" and lasting):
            return False
        tool = _ASKED if self._policy == "ask" else _GIVEN
        try:
            await self._turn.call(tool, about | {"turn": self._turn.id})
        except BackstayError as error:
            # Denied; or it could not be asked, and what cannot be asked is not permitted.
            log.debug("permission was not given", extra={"turn": self._turn.id, "reason": str(error)})
            return False
        return True


def _chosen(options: Sequence[PermissionOption], kinds: Sequence[str]) -> PermissionOption | None:
    return next((option for kind in kinds for option in options if option.kind == kind), None)


def _response(option: PermissionOption | None) -> Response:
    if option is None:
        return Response(outcome=DeniedOutcome(outcome="cancelled"))
    return Response(outcome=AllowedOutcome(outcome="selected", option_id=option.option_id))


async def _agreed(**asked: Json) -> str:
    return f"{asked['call']} is permitted, this once"


_ASKED = Tool(
    name="permission",
    function=_agreed,
    description="Lets the agent use one of its own tools, this once.",
    approval=True,
)
_GIVEN = Tool(
    name="permission",
    function=_agreed,
    description="Lets the agent use one of its own tools, as was permitted beforehand.",
)
