"""Whether messages reach a gateway, from what its poller has written."""

from typing import Literal

import msgspec

from backstay.model.gateways.gateway import GatewayInfo, GatewayPerson
from backstay.model.ids import WorkerId

# `polling`: the platform answered lately. `starting`: it has not answered yet. `silent`: it has not answered for too
# long, although a poller has the lease. `failing`: it answers with an error. `stopped`: nothing polls.
ReportedState = Literal["polling", "starting", "silent", "failing", "stopped"]

# A poll waits for messages for at most a minute, and the answer is stored with the next renewal of the lease.
_SILENT_MS = 180_000


class KnownPerson(msgspec.Struct, frozen=True, kw_only=True):
    """A person who was let in by a code, or was given one that nobody has confirmed. The code is not shown.

    Attributes:
        person: The platform's id of the person.
        name: The name that the person had on the platform.
        paired_at: When the person was let in, in milliseconds since 1970 (UTC); None: not yet.
        code_until: When the code expires; None: the person was let in.
    """

    person: str
    name: str
    paired_at: int | None
    code_until: int | None


class GatewayReport(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway and its health.

    Attributes:
        name: The platform and the account, such as `telegram/123456`.
        state: Whether messages reach it.
        problem: Why not; empty if they do.
        received_at: When it last received a message, in milliseconds since 1970 (UTC); None: never.
        answered_at: When the platform last answered a request for messages; None: never.
        poller: The worker that polls the platform; None: no worker does.
        pairing_until: Until when codes are given to further people; None: they are not.
        people: The people who were let in by a code, and those who have one.
    """

    name: str
    state: ReportedState
    problem: str
    received_at: int | None
    answered_at: int | None
    poller: WorkerId | None
    pairing_until: int | None
    people: tuple[KnownPerson, ...]


def report_of(gateway: GatewayInfo, people: tuple[GatewayPerson, ...], now: int) -> GatewayReport:
    """The report of a gateway at a moment."""
    state, problem = _health(gateway, now)
    invites = gateway.pairing_until is not None and gateway.pairing_until > now
    return GatewayReport(
        name=gateway.name,
        state=state,
        problem=problem,
        received_at=gateway.received_at,
        answered_at=gateway.answered_at,
        poller=gateway.holder if gateway.is_polled else None,
        pairing_until=gateway.pairing_until if invites else None,
        people=tuple(
            KnownPerson(person=one.person, name=one.name, paired_at=one.paired_at, code_until=one.code_until)
            for one in people
        ),
    )


def _health(gateway: GatewayInfo, now: int) -> tuple[ReportedState, str]:
    if not gateway.is_polled:
        ended = "no process polls it" if gateway.holder is None else "the process that polled it died"
        return "stopped", ended
    if gateway.problem:
        return "failing", gateway.problem
    if gateway.answered_at is None:
        return "starting", ""
    silent = now - gateway.answered_at
    if silent >= _SILENT_MS:
        return "silent", f"the platform has not answered for {silent // 60_000} minutes"
    return "polling", ""
