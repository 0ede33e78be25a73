"""The schedules of one owner in an open app."""

from backstay.clock import machine_zone
from backstay.model.addresses.address import Address
from backstay.model.ids import ScheduleId, SessionId
from backstay.model.schedules.schedule import IfMissed, Schedule, ScheduleEntry
from backstay.model.turn import IfBusy
from backstay.runtime.owner_scope import OwnerScope
from backstay.store import commands


class OwnerSchedules:
    """The methods of an app for schedules: messages that are sent at a moment, or again and again."""

    @property
    def owner(self) -> str:
        """The owner of the sessions."""
        raise NotImplementedError

    @property
    def _scope(self) -> OwnerScope:
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
        """Store a message that is sent at a moment, or again and again.

        It is sent by any app that serves agents on the same store.

        Args:
            when: The due times, such as `2026-12-01 09:00`, `weekday 9:00 Europe/Zurich` or `10 minutes`.
            to: A session id or an address.
            text: The message.
            zone: The time zone of due times that name none; None: the machine's.
            agent: The agent that answers. None: the one that was asked last in the session, or else `default`.
            if_busy: The policy if a turn runs or waits in the session at a due time.
            if_missed: The policy for due times at which no process was there to send the message: `late` (it is sent
                once, as soon as possible), `skip`, or `ask` (a person decides).
            request_id: Names one request among the schedules of its owner. Repeating it returns the same schedule.

        Returns:
            The schedule.

        Raises:
            NotFound: The owner has no such session.
            SessionEnded: The session was ended.
            SessionExpired: The session has expired.
            UnknownAgent: No process serves or has served the agent.
            RequestMismatch: The request id was used for another schedule.
            QuotaExceeded: The owner has reached its limit of schedules or stored bytes.
            InvalidPayload: An argument is not valid, or the only due time is in the past.
            TooLarge: The message is too long.
        """
        return await self._scope.run(
            commands.create_schedule(
                when,
                to,
                text,
                owner=self.owner,
                zone=zone or machine_zone(),
                agent=agent,
                if_busy=if_busy,
                if_missed=if_missed,
                request_id=request_id,
            )
        )

    async def schedules(self) -> tuple[Schedule, ...]:
        """Read all schedules, oldest first. Of the ended ones, the newest hundred are kept.

        Returns:
            The schedules.
        """
        return await self._scope.run(commands.schedules(owner=self.owner))

    async def schedule(self, schedule: ScheduleId) -> Schedule:
        """Read a schedule.

        Args:
            schedule: The schedule.

        Returns:
            The schedule.

        Raises:
            NotFound: The owner has no such schedule.
        """
        return await self._scope.run(commands.schedule(schedule, owner=self.owner))

    async def schedule_log(self, schedule: ScheduleId, *, limit: int = 20) -> tuple[ScheduleEntry, ...]:
        """Read the log of a schedule, newest entry first. The newest hundred entries are kept.

        Args:
            schedule: The schedule.
            limit: How many entries are read at most.

        Returns:
            The entries.

        Raises:
            NotFound: The owner has no such schedule.
            InvalidPayload: The limit is out of range.
        """
        return await self._scope.run(commands.schedule_log(schedule, owner=self.owner, limit=limit))

    async def pause_schedule(self, schedule: ScheduleId) -> Schedule:
        """Pause a schedule. Pausing it again changes nothing.

        Args:
            schedule: The schedule.

        Returns:
            The schedule.

        Raises:
            NotFound: The owner has no such schedule.
            NothingToDo: The schedule has ended.
        """
        return await self._scope.run(commands.pause_schedule(schedule, owner=self.owner))

    async def resume_schedule(self, schedule: ScheduleId) -> Schedule:
        """Resume a paused schedule. Due times of a recurrence that passed meanwhile are left out.

        A single moment that passed meanwhile is decided by its policy for missed due times.

        Args:
            schedule: The schedule.

        Returns:
            The schedule; the entry in its log counts the due times that were left out.

        Raises:
            NotFound: The owner has no such schedule.
            NothingToDo: The schedule has ended.
        """
        return await self._scope.run(commands.resume_schedule(schedule, owner=self.owner))

    async def skip_schedule(self, schedule: ScheduleId) -> Schedule:
        """Leave out the missed due time that a schedule asks about.

        Args:
            schedule: The schedule.

        Returns:
            The schedule.

        Raises:
            NotFound: The owner has no such schedule.
            NothingToDo: The schedule asks about no due time.
        """
        return await self._scope.run(commands.skip_schedule(schedule, owner=self.owner))

    async def run_schedule(self, schedule: ScheduleId, *, request_id: str | None = None) -> Schedule:
        """Send the message now: for the missed due time that the schedule asks about, or else besides its due times.

        Args:
            schedule: The schedule.
            request_id: Names one request among those for this schedule. Repeating it sends nothing again.

        Returns:
            The schedule; the entry in its log names the turn.

        Raises:
            NotFound: The owner has no such schedule, or no such session any more.
            SessionBusy: A turn runs or waits in the session, and the schedule's `if_busy` is `reject`.
            SessionEnded: The session was ended.
            SessionExpired: The session has expired.
            UnknownAgent: No process serves or has served the agent.
            QuotaExceeded: The owner has reached its limit of stored bytes.
            InvalidPayload: The request id is not valid.
        """
        return await self._scope.run(commands.run_schedule(schedule, owner=self.owner, request_id=request_id))

    async def delete_schedule(self, schedule: ScheduleId) -> Schedule:
        """Delete a schedule. The turns that it submitted stay.

        Args:
            schedule: The schedule.

        Returns:
            The schedule as it was.

        Raises:
            NotFound: The owner has no such schedule.
        """
        return await self._scope.run(commands.delete_schedule(schedule, owner=self.owner))
