"""Local times and moments: the moment of a time in a time zone, also where the clocks change."""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

from backstay.errors import InvalidPayload

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_NAME = re.compile(r"[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)

# No due time lies beyond this moment: the calendar of Python ends with the year 9999.
LAST_MOMENT = round((datetime(9990, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds()) * 1000


def zone_named(name: str) -> "ZoneInfo":
    """The time zone of this name, or `InvalidPayload`."""
    # Imported here: every command loads this module, and few need a time zone.
    from zoneinfo import ZoneInfo  # noqa: PLC0415

    problem: Exception | None = None
    if len(name) <= 64 and _NAME.fullmatch(name):
        try:
            return ZoneInfo(name)
        except (OSError, ValueError, LookupError) as error:
            problem = error
    raise InvalidPayload(
        f"{name!r} is not a time zone of this machine",
        hint="Use an IANA name such as Europe/Zurich or UTC. If every name fails, `pip install tzdata`.",
    ) from problem


def local_time(moment: int, zone: tzinfo) -> datetime:
    """The time that a clock shows at this moment, without its zone."""
    return (_EPOCH + timedelta(milliseconds=moment)).astimezone(zone).replace(tzinfo=None)


def moment_at(local: datetime, zone: tzinfo) -> int:
    """The moment at which a clock shows this time.

    Where clocks are set back it is the first of the two. A time that is left out becomes the moment of the change.
    """
    first = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if first.astimezone(zone).replace(tzinfo=None) != local:
        first = _change_between(local.replace(tzinfo=zone, fold=1).astimezone(UTC), first, zone)
    return (first - _EPOCH) // timedelta(milliseconds=1)


def _change_between(before: datetime, after: datetime, zone: tzinfo) -> datetime:
    """The first second with the offset of `after`, which is later than `before` and has another one."""
    offset = after.astimezone(zone).utcoffset()
    while after - before > _SECOND:
        middle = before + (after - before) // _SECOND // 2 * _SECOND
        if middle.astimezone(zone).utcoffset() == offset:
            after = middle
        else:
            before = middle
    return after
