"""The conversation: one session of the Agent Client Protocol with one child. Its memory is the child's, not the truth.

The protocol's library matches questions and answers and knows the shapes of both. What it leaves open is bounded here:
how long an answer is waited for, how much may wait to be read, and what becomes of messages that nobody expects.
"""

import asyncio
import contextlib
import contextvars
import logging
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple, TypeVar

from acp import PROTOCOL_VERSION, RequestError
from acp.connection import Connection
from acp.meta import AGENT_METHODS, CLIENT_METHODS
from acp.schema import (
    CancelNotification,
    ClientCapabilities,
    DeniedOutcome,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    NewSessionRequest,
    NewSessionResponse,
    PromptRequest,
    PromptResponse,
    RequestPermissionRequest,
    RequestPermissionResponse,
    SessionNotification,
)
from pydantic import BaseModel, ValidationError

from backstay.agents.acp.child import Child, shown
from backstay.agents.acp.telling import plain, texts
from backstay.agents.acp.wire import Wire
from backstay.errors import AgentError, AgentFailed, AgentTimedOut

log = logging.getLogger("backstay.agents.acp")

M = TypeVar("M", bound=BaseModel)

# How many reports may wait until the turn has taken them; then the child's output is not read.
_WAITING = 256
# How long what a program wrote before its end may take to arrive.
_LAST_WORDS = 1.0
_SIGN_IN = -32000


class Asked(NamedTuple):
    """A question for permission; who asked waits for the answer."""

    request: RequestPermissionRequest
    answer: "asyncio.Future[RequestPermissionResponse]"


class Reported(NamedTuple):
    """A report, in the protocol's own form, or as it came if that form is not known."""

    update: object


Happening = Asked | Reported | PromptResponse


class Conversation:
    """Speaks to a child. One prompt at a time; what is reported between prompts is nobody's."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.session = ""
        # What it said that this conversation has cost so far.
        self.cost = 0.0
        self._inbox: deque[Happening] | None = None
        self._asking: asyncio.Task[PromptResponse] | None = None
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._open: set[asyncio.Future[RequestPermissionResponse]] = set()
        self._wire = Wire(child, self._room.wait)
        self._room.set()
        # Its tasks outlive the turn in which they were begun, and must not be taken for a part of it.
        self._connection = contextvars.Context().run(Connection, self._handle, self._wire)
        self._watching = asyncio.create_task(self._watch(), name=f"watch {child.name}")

    @property
    def over(self) -> bool:
        """Whether nothing more can be said in it."""
        return self.child.ended or bool(self._wire.fault)

    async def open(self, cwd: str, seconds: float) -> None:
        """Greet the child and begin a session in this directory; `AgentError` if that fails or takes too long."""
        name = self.child.name
        try:
            async with asyncio.timeout(seconds):
                await self._greet()
                new = NewSessionRequest(cwd=cwd, mcp_servers=[])
                self.session = (await self._ask("session_new", new, NewSessionResponse)).session_id
        except TimeoutError:
            said = f"; it wrote: {self._wire.nonsense}" if self._wire.nonsense else ""
            raise AgentTimedOut(
                f"{name} did not begin a session within {seconds:g} s{said}",
                hint="Check that this command line starts it as an ACP agent, and that it needs no sign-in.",
            ) from None

    async def prompt(self, parts: Sequence[str]) -> AsyncGenerator[Happening, None]:
        """Say something, and hear what happens until it is answered; the answer comes last."""
        self._inbox = deque()
        request = PromptRequest(session_id=self.session, prompt=[*texts(parts)])
        asking = self._asking = asyncio.create_task(self._ask("session_prompt", request, PromptResponse))
        asking.add_done_callback(_look_away)
        asking.add_done_callback(lambda _: self._news.set())
        try:
            while True:
                while self._inbox:
                    yield self._taken(self._inbox)
                if asking.done():
                    yield asking.result()
                    return
                await self._news.wait()
                self._news.clear()
        finally:
            self._forget()

    async def cancel(self, seconds: float) -> None:
        """Ask the child to stop, and give it this long to do so. Nothing of what it says then is heard."""
        self._forget()
        cancelling = CancelNotification(session_id=self.session)
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(seconds):
                await self._connection.send_notification(AGENT_METHODS["session_cancel"], plain(cancelling))
                if self._asking is not None:
                    await asyncio.wait({self._asking})

    async def close(self) -> None:
        """End the child, and with it the conversation."""
        self._forget()
        self._watching.cancel()
        try:
            await self.child.close()
        finally:
            if self._asking is not None:
                self._asking.cancel()
            await self._connection.close()

    # --- what the child asks and reports ------------------------------------------------------------------------------

    async def _handle(self, method: str, params: Any, is_notification: bool) -> Any:  # Any: as the library has it
        if method == CLIENT_METHODS["session_update"]:
            self._report(params)
            return None
        if method == CLIENT_METHODS["session_request_permission"] and not is_notification:
            return await self._be_asked(RequestPermissionRequest.model_validate(params))
        if is_notification:
            return None
        # Files and terminals are not offered: what it does, it does by itself, and says so.
        raise RequestError.method_not_found(method)

    def _report(self, params: object) -> None:
        if not isinstance(params, dict) or params.get("sessionId") != self.session:
            return
        try:
            update: object = SessionNotification.model_validate(params).update
        except ValidationError:
            # From a newer protocol than the library's, or malformed: kept as it came.
            update = params.get("update")
        self._happened(Reported(update))

    async def _be_asked(self, request: RequestPermissionRequest) -> RequestPermissionResponse:
        answer: asyncio.Future[RequestPermissionResponse] = asyncio.get_running_loop().create_future()
        self._open.add(answer)
        try:
            if not self._happened(Asked(request, answer)):
                return _CANCELLED
            return await answer
        finally:
            self._open.discard(answer)

    def _happened(self, happening: Happening) -> bool:
        """Let the turn know; whether there is one."""
        if self._inbox is None:
            return False
        self._inbox.append(happening)
        self._news.set()
        if len(self._inbox) >= _WAITING:
            self._room.clear()
        return True

    def _taken(self, inbox: deque[Happening]) -> Happening:
        self._room.set()
        return inbox.popleft()

    def _forget(self) -> None:
        """Nobody listens any more; who waits for permission hears that there is none."""
        self._inbox = None
        self._room.set()
        for answer in self._open:
            if not answer.done():
                answer.set_result(_CANCELLED)

    # --- asking -----------------------------------------------------------------------------------------------------

    async def _greet(self) -> None:
        ours = Implementation(name="backstay", title="Backstay", version=version("backstay"))
        hello = InitializeRequest(
            protocol_version=PROTOCOL_VERSION, client_capabilities=ClientCapabilities(), client_info=ours
        )
        spoken = (await self._ask("initialize", hello, InitializeResponse)).protocol_version
        if spoken != PROTOCOL_VERSION:
            raise AgentFailed(
                f"{self.child.name} speaks version {spoken} of ACP, and Backstay version {PROTOCOL_VERSION}",
                hint="Install versions of both that speak the same.",
            )

    async def _ask(self, method: str, request: BaseModel, answer: type[M]) -> M:
        """Ask the child and read its answer; everything that can go wrong is an `AgentError`."""
        name = self.child.name
        try:
            given = await self._connection.send_request(AGENT_METHODS[method], plain(request))
        except RequestError as error:
            raise self._refused(error) from None
        except ConnectionError:
            raise await self._lost() from None
        try:
            return answer.model_validate(given)
        except ValidationError:
            raise AgentFailed(f"{name} answered {AGENT_METHODS[method]} with what is no answer") from None

    def _refused(self, error: RequestError) -> AgentError:
        name = self.child.name
        if error.code == _SIGN_IN:
            return AgentFailed(
                f"{name} wants somebody to sign in first",
                hint="Start it once in a terminal and sign in, or set its key.",
            )
        more = error.data.get("details") if isinstance(error.data, dict) else error.data
        about = f" ({shown(more)[:300]})" if isinstance(more, str) and more else ""
        return AgentFailed(f"{name} answered with an error: {shown(str(error))[:300]}{about}")

    async def _lost(self) -> AgentError:
        if self._wire.fault:
            return AgentFailed(f"{self.child.name} {self._wire.fault}")
        fate = await self.child.fate()
        said = f"; it wrote: {self._wire.nonsense}" if self._wire.nonsense and not self.session else ""
        return AgentFailed(f"{self.child.name} {fate}{said}")

    async def _watch(self) -> None:
        """When the child is gone, so is the conversation, also if something that it started keeps its pipes open."""
        await self.child.gone()
        await asyncio.sleep(_LAST_WORDS)
        await self._connection.close()


_CANCELLED = RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))


def _look_away(task: "asyncio.Task[object]") -> None:
    if not task.cancelled():
        task.exception()
