"""Tracing: spans for requests and turns, if the OpenTelemetry API is installed.

Names follow the semantic conventions for generative AI. Spans never have the contents of messages.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from typing import Any

from starlette.types import Scope

from backstay.model.turn import Completed, OpenTurn, Outcome


class Tracer:
    """Creates no spans; used if OpenTelemetry is not installed."""

    def request(self, scope: Scope) -> AbstractContextManager[None]:
        """A context around one request."""
        return nullcontext()

    def started(self, turn: OpenTurn) -> None:
        """Called when a turn has started."""

    def ended(self, turn: OpenTurn, outcome: Outcome | None) -> None:
        """Called when a turn has ended; `outcome` is None if another process took it over."""


class OpenTelemetryTracer(Tracer):
    """Creates spans with the given provider, by default that of the process."""

    def __init__(self, provider: Any = None) -> None:  # Any: the package with its types may not be installed
        from opentelemetry import trace  # noqa: PLC0415  # optional

        self._trace = trace
        self._tracer = trace.get_tracer("backstay", tracer_provider=provider)
        self._turns: dict[str, Any] = {}  # Any: spans, as above

    @contextmanager
    def request(self, scope: Scope) -> Iterator[None]:
        """A server span, renamed to the operation when that is known."""
        with self._tracer.start_as_current_span(f"{scope['method']}", kind=self._trace.SpanKind.SERVER) as span:
            yield
            operation = scope.get("operation", "unknown")
            span.update_name(f"{scope['method']} {operation}")
            span.set_attribute("backstay.operation", operation)

    def started(self, turn: OpenTurn) -> None:
        span = self._tracer.start_span(f"invoke_agent {turn.agent}", kind=self._trace.SpanKind.INTERNAL)
        span.set_attribute("gen_ai.operation.name", "invoke_agent")
        span.set_attribute("gen_ai.agent.name", turn.agent or "")
        span.set_attribute("gen_ai.conversation.id", turn.session)
        span.set_attribute("gen_ai.response.id", turn.id)
        self._turns[turn.id] = span

    def ended(self, turn: OpenTurn, outcome: Outcome | None) -> None:
        span = self._turns.pop(turn.id, None)
        if span is None:
            return
        span.set_attribute("backstay.outcome", "taken over" if outcome is None else type(outcome).__name__.lower())
        if not isinstance(outcome, Completed):
            span.set_status(self._trace.StatusCode.ERROR)
        span.end()


def make_tracer() -> Tracer:
    """The tracer for this installation."""
    return OpenTelemetryTracer() if find_spec("opentelemetry") is not None else Tracer()
