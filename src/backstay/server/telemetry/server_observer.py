"""The observer of the runtime: reports turns and writes as metrics, spans and log lines."""

from backstay.model.turn import OpenTurn, Outcome
from backstay.runtime.observer import Observer
from backstay.server.telemetry.logs import log
from backstay.server.telemetry.metrics import Metrics
from backstay.server.telemetry.tracing import Tracer


class ServerObserver(Observer):
    """Counts writes and turns, and notifies the tracer."""

    def __init__(self, metrics: Metrics, tracer: Tracer) -> None:
        self._metrics, self._tracer = metrics, tracer

    def wrote(self, verb: str, seconds: float) -> None:
        self._metrics.commit_seconds.observe(seconds)
        if verb == "checkpoint":
            self._metrics.checkpoint_seconds.observe(seconds)

    def started(self, turn: OpenTurn) -> None:
        self._metrics.running.add(1)
        self._tracer.started(turn)
        log.info("turn started", extra={"session": turn.session, "turn": turn.id, "agent": turn.agent})

    def ended(self, turn: OpenTurn, outcome: Outcome | None) -> None:
        named = "taken_over" if outcome is None else type(outcome).__name__.lower()
        self._metrics.running.add(-1)
        self._metrics.turns.add(outcome=named)
        self._tracer.ended(turn, outcome)
        log.info("turn ended", extra={"session": turn.session, "turn": turn.id, "outcome": named})
