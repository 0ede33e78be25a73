"""One ACP session with one child process. Its memory is a copy: the window in the store is authoritative.

The ACP library matches requests and responses and validates both. This module adds the limits that it lacks: a timeout
for responses, a bound on unread reports, and the handling of unexpected messages.
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

from backstay.agents.acp.json_rpc_pipe import JsonRpcPipe
from backstay.agents.acp.updates import plain, texts
from backstay.agents.programs.child_process import Child, shown
from backstay.errors import AgentError, AgentFailed, AgentTimedOut

log = logging.getLogger("backstay.agents.acp")

M = TypeVar("M", bound=BaseModel)

# How many reports may wait for the turn; beyond this the child's output is not read.
_WAITING = 256
# How long the last output of a program may take to arrive after its end.
_LAST_OUTPUT_SECONDS = 1.0
_SIGN_IN = -32000


class PermissionRequest(NamedTuple):
    """A permission request; the child waits for the answer."""

    request: RequestPermissionRequest
    answer: "asyncio.Future[RequestPermissionResponse]"


class AcpUpdate(NamedTuple):
    """A session update: parsed, or as it arrived if its type is unknown."""

    update: object


AcpEvent = PermissionRequest | AcpUpdate | PromptResponse


class AcpSession:
    """A session with a child. One prompt at a time; updates between prompts are dropped."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.session = ""
        # The cost of this session so far, as the child reported it.
        self.cost = 0.0
        self._inbox: deque[AcpEvent] | None = None
        self._prompting: asyncio.Task[PromptResponse] | None = None
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._open: set[asyncio.Future[RequestPermissionResponse]] = set()
        self._pipe = JsonRpcPipe(child, self._room.wait)
        self._room.set()
        # Its tasks outlive the turn that started them, so they must not inherit the turn's context.
        self._connection = contextvars.Context().run(Connection, self._handle, self._pipe)
        self._watching = asyncio.create_task(self._watch(), name=f"watch {child.name}")

    @property
    def over(self) -> bool:
        """Whether the child can no longer be prompted."""
        return self.child.ended or bool(self._pipe.fault)

    async def open(self, cwd: str, seconds: float) -> None:
        """Initialise the child and start a session in this directory; `AgentError` if that fails or takes too long."""
        name = self.child.name
        try:
            async with asyncio.timeout(seconds):
                await self._initialize()
                new = NewSessionRequest(cwd=cwd, mcp_servers=[])
                self.session = (await self._request("session_new", new, NewSessionResponse)).session_id
        except TimeoutError:
            detail = f"; it wrote: {self._pipe.nonsense}" if self._pipe.nonsense else ""
            raise AgentTimedOut(
                f"{name} did not start a session within {seconds:g} s{detail}",
                hint="Check that this command line starts it as an ACP agent, and that it needs no sign-in.",
            ) from None

    async def prompt(self, parts: Sequence[str]) -> AsyncGenerator[AcpEvent, None]:
        """Send a prompt; yield what the child reports and asks, and last its response."""
        self._inbox = deque()
        request = PromptRequest(session_id=self.session, prompt=[*texts(parts)])
        prompting = self._prompting = asyncio.create_task(self._request("session_prompt", request, PromptResponse))
        prompting.add_done_callback(_mark_retrieved)
        prompting.add_done_callback(lambda _: self._news.set())
        try:
            while True:
                while self._inbox:
                    yield self._taken(self._inbox)
                if prompting.done():
                    yield prompting.result()
                    return
                await self._news.wait()
                self._news.clear()
        finally:
            self._forget()

    async def cancel(self, seconds: float) -> None:
        """Ask the child to stop, and wait up to `seconds` for it. Its reports during this time are dropped."""
        self._forget()
        cancelling = CancelNotification(session_id=self.session)
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(seconds):
                await self._connection.send_notification(AGENT_METHODS["session_cancel"], plain(cancelling))
                if self._prompting is not None:
                    await asyncio.wait({self._prompting})

    async def close(self) -> None:
        """End the child and the session."""
        self._forget()
        self._watching.cancel()
        try:
            await self.child.close()
        finally:
            tasks = [self._watching] if self._prompting is None else [self._watching, self._prompting]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._connection.close()

    # --- requests and updates of the child ----------------------------------------------------------------------------

    async def _handle(self, method: str, params: Any, is_notification: bool) -> Any:  # Any: as the library has it
        if method == CLIENT_METHODS["session_update"]:
            self._report(params)
            return None
        if method == CLIENT_METHODS["session_request_permission"] and not is_notification:
            return await self._request_permission(RequestPermissionRequest.model_validate(params))
        if is_notification:
            return None
        # We offer no files or terminals: the agent uses its own, and reports what it does.
        raise RequestError.method_not_found(method)

    def _report(self, params: object) -> None:
        if not isinstance(params, dict) or params.get("sessionId") != self.session:
            return
        try:
            update: object = SessionNotification.model_validate(params).update
        except ValidationError:
            # From a newer version of the protocol, or malformed: stored as it arrived.
            update = params.get("update")
        self._enqueue(AcpUpdate(update))

    async def _request_permission(self, request: RequestPermissionRequest) -> RequestPermissionResponse:
        answer: asyncio.Future[RequestPermissionResponse] = asyncio.get_running_loop().create_future()
        self._open.add(answer)
        try:
            if not self._enqueue(PermissionRequest(request, answer)):
                return _CANCELLED
            return await answer
        finally:
            self._open.discard(answer)

    def _enqueue(self, event: AcpEvent) -> bool:
        """Pass a report to the running turn; return whether there is one."""
        if self._inbox is None:
            return False
        self._inbox.append(event)
        self._news.set()
        if len(self._inbox) >= _WAITING:
            self._room.clear()
        return True

    def _taken(self, inbox: deque[AcpEvent]) -> AcpEvent:
        self._room.set()
        return inbox.popleft()

    def _forget(self) -> None:
        """Stop reporting to the turn, and answer the open permission requests with "cancelled"."""
        self._inbox = None
        self._room.set()
        for answer in self._open:
            if not answer.done():
                answer.set_result(_CANCELLED)

    # --- requests to the child ----------------------------------------------------------------------------------------

    async def _initialize(self) -> None:
        this_client = Implementation(name="backstay", title="Backstay", version=version("backstay"))
        hello = InitializeRequest(
            protocol_version=PROTOCOL_VERSION, client_capabilities=ClientCapabilities(), client_info=this_client
        )
        agent_version = (await self._request("initialize", hello, InitializeResponse)).protocol_version
        if agent_version != PROTOCOL_VERSION:
            raise AgentFailed(
                f"{self.child.name} uses version {agent_version} of ACP, and Backstay uses version {PROTOCOL_VERSION}",
                hint="Install versions of both that support the same protocol.",
            )

    async def _request(self, method: str, request: BaseModel, answer: type[M]) -> M:
        """Send a request and return the response; every failure is raised as an `AgentError`."""
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
            raise AgentFailed(f"{name} sent an invalid response to {AGENT_METHODS[method]}") from None

    def _refused(self, error: RequestError) -> AgentError:
        name = self.child.name
        if error.code == _SIGN_IN:
            return AgentFailed(
                f"{name} requires a sign-in",
                hint="Start it once in a terminal and sign in, or set its API key.",
            )
        more = error.data.get("details") if isinstance(error.data, dict) else error.data
        about = f" ({shown(more)[:300]})" if isinstance(more, str) and more else ""
        return AgentFailed(f"{name} answered with an error: {shown(str(error))[:300]}{about}")

    async def _lost(self) -> AgentError:
        if self._pipe.fault:
            return AgentFailed(f"{self.child.name} {self._pipe.fault}")
        exit_summary = await self.child.exit_summary()
        detail = f"; it wrote: {self._pipe.nonsense}" if self._pipe.nonsense and not self.session else ""
        return AgentFailed(f"{self.child.name} {exit_summary}{detail}")

    async def _watch(self) -> None:
        """Close the connection after the child has ended, also if a grandchild keeps its pipes open."""
        await self.child.gone()
        await asyncio.sleep(_LAST_OUTPUT_SECONDS)
        await self._connection.close()


_CANCELLED = RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))


def _mark_retrieved(task: "asyncio.Task[object]") -> None:
    if not task.cancelled():
        task.exception()
