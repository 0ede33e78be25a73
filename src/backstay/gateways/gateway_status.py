"""The status of a gateway in this process: shared by its tasks, and read by the web UI and the command line."""

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
    doubtful: int = 0
    poll_failures: int = 0
    unreported_answer: bool = False

    def change(self, state: GatewayState, problem: str = "") -> bool:
        """Note the state; returns whether it is another one."""
        changed = (self.state, self.problem) != (state, problem)
        self.state, self.problem = state, problem
        return changed

    def platform_answered(self) -> None:
        """The platform answered a request for messages."""
        self.unreported_answer, self.problem = True, ""

    def platform_failed(self, reason: str) -> None:
        """The platform gave no messages."""
        self.poll_failures += 1
        self.problem = reason

    def health(self) -> PollerHealth:
        """The health of the platform since the last call."""
        answered, self.unreported_answer = self.unreported_answer, False
        return PollerHealth(answered=answered, problem=self.problem)
