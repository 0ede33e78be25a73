"""The schedules of a server's owner: the methods of an app, over HTTP. Each is described at `App`."""

from backstay.client import schedule_calls
from backstay.client.api_calls import new_request_id
from backstay.client.server_connection import Connection
from backstay.model.addresses.address import Address
from backstay.model.ids import ScheduleId, SessionId
from backstay.model.schedules.schedule import IfMissed, Schedule, ScheduleEntry
from backstay.model.turn import IfBusy


class ClientSchedules:
    """The methods of a client for schedules."""

    @property
    def _connection(self) -> Connection:
        raise NotImplementedError

    async def create_schedule(
        self,
        when: str,
        to: Address | SessionId,
        text: str,
        *,
        zone: str | None = None,
        agent: str | None = None,
        if_busy: IfBusy = "enqueue",
        if_missed: IfMissed = "late",
        request_id: str | None = None,
    ) -> Schedule:
        """Store a message that is sent at a moment, or again and again; see `App.create_schedule`.

        Without a `zone`, due times that name none are in the time zone of the server.
        """
        call = schedule_calls.create(
            when,
            to,
            text,
            zone=zone,
            agent=agent,
            if_busy=if_busy,
            if_missed=if_missed,
            request_id=request_id or new_request_id(),
        )
        return await self._connection.run(call)

    async def schedules(self) -> tuple[Schedule, ...]:
        """Read all schedules, oldest first; see `App.schedules`."""
        return (await self._connection.run(schedule_calls.every())).schedules

    async def schedule(self, schedule: ScheduleId) -> Schedule:
        """Read a schedule; see `App.schedule`."""
        return await self._connection.run(schedule_calls.read(schedule))

    async def schedule_log(self, schedule: ScheduleId, *, limit: int = 20) -> tuple[ScheduleEntry, ...]:
        """Read the log of a schedule; see `App.schedule_log`."""
        return (await self._connection.run(schedule_calls.log(schedule, limit))).entries

    async def pause_schedule(self, schedule: ScheduleId) -> Schedule:
        """Pause a schedule; see `App.pause_schedule`."""
        return await self._connection.run(schedule_calls.change(schedule, "pause"))

    async def resume_schedule(self, schedule: ScheduleId) -> Schedule:
        """Resume a paused schedule; see `App.resume_schedule`."""
        return await self._connection.run(schedule_calls.change(schedule, "resume"))

    async def skip_schedule(self, schedule: ScheduleId) -> Schedule:
        """Leave out the missed due time that a schedule asks about; see `App.skip_schedule`."""
        return await self._connection.run(schedule_calls.change(schedule, "skip"))

    async def run_schedule(self, schedule: ScheduleId, *, request_id: str | None = None) -> Schedule:
        """Send the message of a schedule now; see `App.run_schedule`."""
        return await self._connection.run(schedule_calls.run(schedule, request_id or new_request_id()))

    async def delete_schedule(self, schedule: ScheduleId) -> Schedule:
        """Delete a schedule; see `App.delete_schedule`."""
        return await self._connection.run(schedule_calls.delete(schedule))
