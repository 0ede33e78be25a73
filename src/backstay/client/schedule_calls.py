"""The operations of the HTTP API on schedules, each as a function that returns a typed call."""

from typing import Literal
from urllib.parse import quote

import msgspec

from backstay.client.api_call import ApiCall
from backstay.model.addresses.address import Address
from backstay.model.ids import ScheduleId, SessionId, check_schedule_id
from backstay.model.schedules.schedule import IfMissed, Schedule, ScheduleEntry
from backstay.model.turn import IfBusy


class ScheduleRows(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules."""

    schedules: tuple[Schedule, ...]


class ScheduleEntries(msgspec.Struct, frozen=True, kw_only=True):
    """Entries in the log of a schedule."""

    entries: tuple[ScheduleEntry, ...]


def create(
    when: str,
    to: Address | SessionId,
    text: str,
    *,
    zone: str | None,
    agent: str | None,
    if_busy: IfBusy,
    if_missed: IfMissed,
    request_id: str,
) -> ApiCall[Schedule]:
    """A new schedule."""
    place = {"address": to.spelling} if isinstance(to, Address) else {"session": to}
    rest = {"zone": zone, "agent": agent, "if_busy": if_busy, "if_missed": if_missed}
    return ApiCall(
        method="POST",
        path="api/schedules",
        answer=Schedule,
        body={"when": when, "text": text, **place, **rest},
        request_id=request_id,
    )


def every() -> ApiCall[ScheduleRows]:
    """All schedules."""
    return ApiCall(method="GET", path="api/schedules", answer=ScheduleRows)


def read(schedule: ScheduleId) -> ApiCall[Schedule]:
    """A schedule."""
    return ApiCall(method="GET", path=_path(schedule), answer=Schedule)


def log(schedule: ScheduleId, limit: int) -> ApiCall[ScheduleEntries]:
    """The newest entries in the log of a schedule."""
    return ApiCall(method="GET", path=f"{_path(schedule)}/log", answer=ScheduleEntries, query={"limit": limit})


def change(schedule: ScheduleId, verb: Literal["pause", "resume", "skip"]) -> ApiCall[Schedule]:
    """Pause or resume a schedule, or leave out a due time. Pausing and resuming twice have the effect of once."""
    path = f"{_path(schedule)}/{verb}"
    return ApiCall(method="POST", path=path, answer=Schedule, repeatable=verb != "skip")


def run(schedule: ScheduleId, request_id: str) -> ApiCall[Schedule]:
    """Send the message of a schedule now."""
    return ApiCall(method="POST", path=f"{_path(schedule)}/run", answer=Schedule, request_id=request_id)


def delete(schedule: ScheduleId) -> ApiCall[Schedule]:
    """Delete a schedule."""
    return ApiCall(method="DELETE", path=_path(schedule), answer=Schedule)


def _path(schedule: ScheduleId) -> str:
    return f"api/schedules/{quote(check_schedule_id(schedule), safe='')}"
