"""`backstay at`, `every` and `schedules`: messages that are sent at a moment, or again and again."""

from collections.abc import Callable, Sequence
from typing import get_args

import click

from backstay.cli import answering
from backstay.cli.answering import AnyApp
from backstay.cli.commands.send_command import target
from backstay.cli.options import CommandOptions, F, session_options
from backstay.cli.output import safe_text, screen
from backstay.cli.session_names import SESSION
from backstay.clock import machine_zone
from backstay.errors import BackstayError, NotFound
from backstay.model.ids import ScheduleId
from backstay.model.schedules.recurrence import Once
from backstay.model.schedules.schedule import IfMissed, Schedule, ScheduleEntry
from backstay.model.schedules.when_parser import parse_when
from backstay.model.turn import IfBusy

AT = """\b
Examples:
  backstay at "2030-12-01 09:00" "Pay the rent."
  backstay at "2030-12-01 09:00 Europe/Zurich" --last "How did it go?"
  backstay at "2030-12-01 09:00" --if-missed skip "Good morning!"
"""
EVERY = """\b
Examples:
  backstay every "day 9:00" "What is on my calendar today?"
  backstay every "weekday 9:00 Europe/Zurich" --address chat://telegram/dm/42 "Stand-up!"
  backstay every "monday,thursday 18:30" --agent reviewer "Review the open changes."
  backstay every "month 31 8:00" "Close the books."
  backstay every "10 minutes" --if-busy reject "Is the build green?"

WHEN is `hour`, `day 9:00`, `weekday 9:00`, some days of the week, `month DAY TIME`, `N minutes` or `N hours`. A
time zone may follow, except after minutes and hours.
"""
LIST = """\b
Examples:
  backstay schedules list
  backstay schedules list --json | jq -r '.schedules[].id'
"""
SHOW = """\b
Examples:
  backstay schedules show sch_01kb…
"""
PAUSE = """\b
Examples:
  backstay schedules pause sch_01kb…
"""
RESUME = """\b
Examples:
  backstay schedules resume sch_01kb…
"""
RUN = """\b
Examples:
  backstay schedules run sch_01kb…
"""
SKIP = """\b
Examples:
  backstay schedules skip sch_01kb…
"""
DELETE = """\b
Examples:
  backstay schedules delete sch_01kb…
"""

_LOG = 20
_schedule = click.argument("schedule", metavar="SCHEDULE")


def _options(command: F) -> F:
    """Add the arguments and options of a new schedule."""
    for option in reversed(
        (
            click.argument("when"),
            click.argument("text", nargs=-1),
            click.option("--session", type=SESSION, help="The session: an id, the beginning of one, or an address."),
            click.option("--address", help="The address that receives the message. Its session is created if needed."),
            click.option("--workspace", "directory", metavar="DIR", help="The directory of the session."),
            click.option("--last", is_flag=True, help="The session with the newest activity."),
            click.option("--agent", metavar="NAME", help="The agent that answers. [default: that of the session]"),
            click.option("--zone", help="The time zone of a WHEN without one. [default: this machine's]"),
            click.option(
                "--if-busy",
                type=click.Choice(get_args(IfBusy)),
                default="enqueue",
                show_default=True,
                help="What to do while a turn runs.",
            ),
            click.option(
                "--if-missed",
                type=click.Choice(get_args(IfMissed)),
                default="late",
                show_default=True,
                help="If no process could send it in time: send it late once, skip it, or ask a person.",
            ),
            click.option("--request-id", help="Idempotency key: the same id again returns the same schedule."),
        )
    ):
        command = option(command)
    return command


@click.command(epilog=AT, short_help="Send a message at a moment.")
@_options
@session_options
def at(options: CommandOptions, *, when: str, **arguments: object) -> None:
    """Send a message at a moment: WHEN is a date and a time, such as "2030-12-01 09:00".

    TEXT is the message; without it, or with -, standard input is read. Without a session, a new one is created. A
    process that serves agents sends it, such as `backstay serve`.
    """
    if not isinstance(parse_when(when, "UTC"), Once):
        raise click.UsageError(f"{when!r} recurs: use `backstay every`.")
    _create(options, when, **arguments)  # type: ignore[arg-type]  # click passes the options that were declared


@click.command(epilog=EVERY, short_help="Send a message again and again.")
@_options
@session_options
def every(options: CommandOptions, *, when: str, **arguments: object) -> None:
    """Send a message again and again: WHEN is a recurrence, such as "weekday 9:00" or "10 minutes".

    TEXT is the message; without it, or with -, standard input is read. Without a session, a new one is created. A
    process that serves agents sends it, such as `backstay serve`.
    """
    if isinstance(parse_when(when, "UTC"), Once):
        raise click.UsageError(f"{when!r} is a single moment: use `backstay at`.")
    _create(options, when, **arguments)  # type: ignore[arg-type]  # click passes the options that were declared


def _create(
    options: CommandOptions,
    when: str,
    *,
    text: Sequence[str],
    session: str | None,
    address: str | None,
    directory: str | None,
    last: bool,
    agent: str | None,
    zone: str | None,
    if_busy: IfBusy,
    if_missed: IfMissed,
    request_id: str | None,
) -> None:
    if sum((session is not None, address is not None, directory is not None, last)) > 1:
        raise click.UsageError("Give only one of --session, --address, --workspace and --last.")
    if request_id is not None and not (session or address or directory or last):
        raise click.UsageError("--request-id needs a session: add --session, --address, --workspace or --last.")
    words = answering.text_of(text)
    to = target(options, session, address, directory, None, last=last)
    with options.app() as app:
        place = app.session().id if to is None else to
        try:
            made = app.create_schedule(
                when,
                place,
                words,
                zone=zone or options.settings.time_zone or machine_zone(),
                agent=agent,
                if_busy=if_busy,
                if_missed=if_missed,
                request_id=request_id,
            )
        except BackstayError:
            if to is None:
                app.session(place).delete()
            raise
    if options.json:
        screen.print_json({"schedule": made})
    else:
        screen.print_line(made.id)
        screen.note(f"{made.when}; first at {screen.moment(made.next_due)} in this machine's time, in {made.to}")


@click.group(short_help="List, pause, resume, run and delete schedules.")
def schedules() -> None:
    """List, pause, resume, run and delete schedules. SCHEDULE is an id, or its first or last letters."""


@schedules.command("list", epilog=LIST)
@session_options
def list_schedules(options: CommandOptions) -> None:
    """List the schedules, oldest first."""
    with _app(options) as app:
        found = app.schedules()
    if options.json:
        screen.print_json({"schedules": found})
    elif found:
        screen.table(["SCHEDULE", "NEXT", "STATE", "LAST", "WHEN", "TO", "TEXT"], [_row(one) for one in found])
    else:
        screen.note('There are no schedules. `backstay every "day 9:00" TEXT` creates one.')


@schedules.command("show", epilog=SHOW)
@_schedule
@session_options
def show(options: CommandOptions, *, schedule: str) -> None:
    """Show a schedule and what happened to it, newest first."""
    with _app(options) as app:
        found = _find(app, schedule)
        log = app.schedule_log(found.id, limit=_LOG)
    if options.json:
        screen.print_json({"schedule": found, "log": log})
        return
    facts = [
        ("schedule", found.id),
        ("when", found.when),
        ("state", found.state),
        ("next", screen.moment(found.next_due)),
        ("asks about", screen.moment(found.asked_due)),
        ("to", found.to),
        ("agent", found.agent or ""),
        ("if busy", found.if_busy),
        ("if missed", found.if_missed),
        ("text", found.text),
    ]
    screen.facts([(name, fact) for name, fact in facts if fact])
    screen.print_line()
    screen.table(["AT", "STEP", "DUE", "DETAIL"], [_entry(one) for one in log])


@schedules.command("pause", epilog=PAUSE)
@_schedule
@session_options
def pause(options: CommandOptions, *, schedule: str) -> None:
    """Pause a schedule. Its due times are left out until it is resumed."""
    _change(options, schedule, "paused", lambda app, one: app.pause_schedule(one))


@schedules.command("resume", epilog=RESUME)
@_schedule
@session_options
def resume(options: CommandOptions, *, schedule: str) -> None:
    """Resume a paused schedule."""
    _change(options, schedule, "resumed", lambda app, one: app.resume_schedule(one))


@schedules.command("run", epilog=RUN)
@_schedule
@session_options
def run(options: CommandOptions, *, schedule: str) -> None:
    """Send the message now: for the missed due time that it asks about, or else besides its due times."""
    _change(options, schedule, "sent", lambda app, one: app.run_schedule(one))


@schedules.command("skip", epilog=SKIP)
@_schedule
@session_options
def skip(options: CommandOptions, *, schedule: str) -> None:
    """Leave out the missed due time that a schedule asks about."""
    _change(options, schedule, "skipped", lambda app, one: app.skip_schedule(one))


@schedules.command("delete", epilog=DELETE)
@_schedule
@session_options
def delete(options: CommandOptions, *, schedule: str) -> None:
    """Delete a schedule. The turns that it submitted stay."""
    _change(options, schedule, "deleted", lambda app, one: app.delete_schedule(one))


def _app(options: CommandOptions) -> AnyApp:
    options.refuse_missing()
    return options.app()


def _change(
    options: CommandOptions, schedule: str, done: str, change: Callable[[AnyApp, ScheduleId], Schedule]
) -> None:
    with _app(options) as app:
        changed = change(app, _find(app, schedule).id)
    if options.json:
        screen.print_json({"schedule": changed})
    else:
        screen.facts([(f"{done} {changed.id}", safe_text.one_line(changed.text))])


def _find(app: AnyApp, name: str) -> Schedule:
    """Return the schedule with this id, or the only one whose id begins or ends with these letters."""
    prefix = name if name.startswith("sch_") else f"sch_{name}"
    found = [one for one in app.schedules() if name and (one.id.startswith(prefix) or one.id.endswith(name))]
    if not found:
        raise NotFound(
            f"there is no schedule whose id begins or ends with {name!r}",
            hint="`backstay schedules list` shows the ids.",
        )
    if len(found) > 1:
        lines = [f"  {one.id}  {safe_text.one_line(one.text)[:60]}" for one in found[:10]]
        raise NotFound("\n".join([f"{name!r} matches several schedules:", *lines]), hint="Write more letters.")
    return found[0]


def _row(one: Schedule) -> list[str]:
    state = "asks" if one.asked_due is not None else one.state
    last = f"{one.last.step} {screen.moment(one.last.at)}"
    return [one.id, screen.moment(one.next_due), state, last, one.when, one.to, one.text]


def _entry(one: ScheduleEntry) -> list[str]:
    """What happened, as a person reads it."""
    late = f"{screen.span(one.late)} late" if one.step == "fired" and one.late >= 1_000 else ""
    counted = screen.counted(one.missed, "due time") if one.missed else ""
    details = [late, counted, one.turn or "", one.reason or ""]
    return [screen.moment(one.at), one.step, screen.moment(one.due), "; ".join(filter(None, details))]
