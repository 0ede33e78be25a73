"""Schedule operations: create, list, pause, resume, run and delete messages that are sent at a moment or repeatedly."""

from typing import Annotated

import msgspec
from msgspec import Meta

from backstay.clock import machine_zone
from backstay.model.ids import ScheduleId, SessionId
from backstay.model.schedules.schedule import IfMissed, Schedule, ScheduleEntry
from backstay.model.turn import IfBusy
from backstay.server.http.api_request import ApiRequest, ApiResponse, NoInput
from backstay.server.http.operation import AnyOperation, Operation
from backstay.server.routes.turn_routes import Name, target


class WantedSchedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message for a session or an address, and its due times: `2026-12-01 09:00`, `weekday 9:00 Europe/Zurich`.

    `zone` is the time zone of due times that name none; without it, the server's. `if_missed` is the policy for due
    times at which no process was there to send the message: send it late once, skip it, or ask a person.
    """

    when: Annotated[str, Meta(min_length=1, max_length=400)]
    text: Annotated[str, Meta(min_length=1)]
    session: SessionId | None = None
    address: Annotated[str, Meta(max_length=8_192)] | None = None
    zone: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    agent: Name | None = None
    if_busy: IfBusy = "enqueue"
    if_missed: IfMissed = "late"


class ScheduleList(msgspec.Struct, frozen=True, kw_only=True):
    """The caller's schedules, oldest first."""

    schedules: tuple[Schedule, ...]


class ScheduleLog(msgspec.Struct, frozen=True, kw_only=True):
    """The log of a schedule, newest entry first."""

    entries: tuple[ScheduleEntry, ...]


class LogQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many entries are read at most."""

    limit: Annotated[int, Meta(ge=1, le=1_000)] = 20


async def list_schedules(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """List the caller's schedules."""
    return ApiResponse(value=ScheduleList(schedules=await call.owned.schedules()))


async def create_schedule(call: ApiRequest[WantedSchedule, NoInput]) -> ApiResponse:
    """Create a schedule; it is durable when the response is sent."""
    wanted = call.body
    made = await call.owned.create_schedule(
        wanted.when,
        await target(call, wanted.session, wanted.address),
        wanted.text,
        zone=wanted.zone or call.service.settings.time_zone or machine_zone(),
        agent=wanted.agent,
        if_busy=wanted.if_busy,
        if_missed=wanted.if_missed,
        request_id=call.request_id,
    )
    return ApiResponse(value=made, headers={"location": f"/api/schedules/{made.id}"})


async def read_schedule(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Read a schedule."""
    return ApiResponse(value=await call.owned.schedule(_schedule(call)))


async def read_schedule_log(call: ApiRequest[NoInput, LogQuery]) -> ApiResponse:
    """Read the log of a schedule."""
    entries = await call.owned.schedule_log(_schedule(call), limit=call.query.limit)
    return ApiResponse(value=ScheduleLog(entries=entries))


async def pause_schedule(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Pause a schedule."""
    return ApiResponse(value=await call.owned.pause_schedule(_schedule(call)))


async def resume_schedule(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Resume a paused schedule."""
    return ApiResponse(value=await call.owned.resume_schedule(_schedule(call)))


async def skip_schedule(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Leave out the missed due time that a schedule asks about."""
    return ApiResponse(value=await call.owned.skip_schedule(_schedule(call)))


async def run_schedule(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Send the message of a schedule now."""
    return ApiResponse(value=await call.owned.run_schedule(_schedule(call), request_id=call.request_id))


async def delete_schedule(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Delete a schedule."""
    return ApiResponse(value=await call.owned.delete_schedule(_schedule(call)))


def _schedule(call: "ApiRequest[NoInput, NoInput] | ApiRequest[NoInput, LogQuery]") -> ScheduleId:
    return ScheduleId(call.named("schedule"))


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/api/schedules",
        name="list_schedules",
        summary="List the caller's schedules, oldest first.",
        run=list_schedules,
        body=NoInput,
        query=NoInput,
        answer=ScheduleList,
    ),
    Operation(
        method="POST",
        path="/api/schedules",
        name="create_schedule",
        summary="Create a schedule: a message that is sent at a moment, or again and again.",
        run=create_schedule,
        body=WantedSchedule,
        query=NoInput,
        answer=Schedule,
        status=201,
        problems=(404,),
        request_id=True,
    ),
    Operation(
        method="GET",
        path="/api/schedules/{schedule}",
        name="read_schedule",
        summary="Read a schedule.",
        run=read_schedule,
        body=NoInput,
        query=NoInput,
        answer=Schedule,
    ),
    Operation(
        method="GET",
        path="/api/schedules/{schedule}/log",
        name="read_schedule_log",
        summary="Read the log of a schedule, newest entry first.",
        run=read_schedule_log,
        body=NoInput,
        query=LogQuery,
        answer=ScheduleLog,
    ),
    *(
        Operation(
            method="POST",
            path=f"/api/schedules/{{schedule}}/{verb}",
            name=run.__name__,
            summary=summary,
            run=run,
            body=NoInput,
            query=NoInput,
            answer=Schedule,
            problems=(413,) if verb == "run" else (),
            request_id=verb == "run",
        )
        for verb, run, summary in (
            ("pause", pause_schedule, "Pause a schedule."),
            ("resume", resume_schedule, "Resume a paused schedule. Due times that passed meanwhile are left out."),
            ("skip", skip_schedule, "Leave out the missed due time that a schedule asks about."),
            ("run", run_schedule, "Send the message now: for the missed due time that is asked about, or besides."),
        )
    ),
    Operation(
        method="DELETE",
        path="/api/schedules/{schedule}",
        name="delete_schedule",
        summary="Delete a schedule. The turns that it submitted stay.",
        run=delete_schedule,
        body=NoInput,
        query=NoInput,
        answer=Schedule,
    ),
)
