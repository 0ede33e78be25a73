"""The status of a gateway in this process: shared by its tasks, and read by the web UI and the command line."""

import time
from typing import Literal

import msgspec

from backstay.model.gateways.gateway import PollerHealth

# `starting`: it connects to the platform. `waiting`: another process polls. `refused`: the platform does not accept the
# token. `failing`: something else prevents it, and it is tried again.
GatewayState = Literal["starting", "waiting", "polling", "refused", "failing"]


class GatewayStatus(msgspec.Struct, kw_only=True):
    """The state of a gateway in this process, and its counters since the process started."""

    name: str
    state: GatewayState = "starting"
    problem: str = ""
    received: int = 0
    ignored: int = 0
    sent: int = 0
    failed: int = 0
    deferred: int = 0
    unknown: int = 0
    poll_failures: int = 0
    unreported_answer: bool = False
    answered_at: float | None = None

    def change(self, state: GatewayState, problem: str = "") -> bool:
        """Note the state; returns whether it is another one."""
        changed = (self.state, self.problem) != (state, problem)
        self.state, self.problem = state, problem
        return changed

    def platform_answered(self) -> None:
        """The platform answered a request for messages."""
        self.unreported_answer, self.problem, self.answered_at = True, "", time.monotonic()

    def platform_failed(self, reason: str) -> None:
        """The platform gave no messages."""
        self.poll_failures += 1
        self.problem = reason

    def silent_seconds(self) -> float | None:
        """The time since the platform answered last; None if this process does not poll or has had no answer."""
        if self.state != "polling" or self.answered_at is None:
            return None
        return time.monotonic() - self.answered_at

    def health(self) -> PollerHealth:
        """The health of the platform since the last call."""
        answered, self.unreported_answer = self.unreported_answer, False
        return PollerHealth(answered=answered, problem=self.problem)
