"""`backstay webhooks`: lists the webhooks of the settings, tests them, and sends again what was given up."""

import asyncio
import base64
import secrets

import click

from backstay.cli.options import CommandOptions, store_options
from backstay.cli.output import screen
from backstay.cli.output.exit_status import Exit
from backstay.errors import NotFound
from backstay.model.gateways.notification import WEBHOOK, DeadLetter
from backstay.model.gateways.webhook_settings import OutgoingWebhook, shown_url
from backstay.store import Store
from backstay.store.commands.gateways import notification_commands

EXAMPLES = """\b
Examples:
  backstay webhooks list
  backstay webhooks test ops
  backstay webhooks failed ops
  backstay webhooks retry ops
  backstay webhooks secret > ops.secret
"""
LIST = """\b
Examples:
  backstay webhooks list
  backstay webhooks list --json | jq '.outgoing[].failed'
"""
TEST = """\b
Examples:
  backstay webhooks test ops
"""
FAILED = """\b
Examples:
  backstay webhooks failed ops
"""
RETRY = """\b
Examples:
  backstay webhooks retry ops
  backstay webhooks retry ops ses_01kb….17
"""
NEW = """\b
Examples:
  backstay webhooks secret > ops.secret
"""
_name = click.argument("name")


@click.group(epilog=EXAMPLES, short_help="List and test webhooks, and send again what could not be delivered.")
def webhooks() -> None:
    """List and test the webhooks of the settings, and send again what could not be delivered."""


@webhooks.command("list", epilog=LIST)
@store_options
def list_webhooks(options: CommandOptions) -> None:
    """List the webhooks of the settings, and what the outgoing ones still have to send."""
    settings = options.settings
    with options.database() as store:
        backlogs = {name: _backlog(options, store, name, hook) for name, hook in settings.webhooks.out.items()}
    if options.json:
        incoming = [{"name": name, "path": f"/hooks/{name}"} for name in settings.webhooks.incoming]
        outgoing = [
            {"name": name, "url": shown_url(hook.url), "events": hook.events}
            | {"waiting": backlogs[name][0], "failed": backlogs[name][1]}
            for name, hook in settings.webhooks.out.items()
        ]
        screen.print_json({"incoming": incoming, "outgoing": outgoing})
        return
    rows = [["in", name, f"POST /hooks/{name}", "", ""] for name in settings.webhooks.incoming]
    rows += [
        ["out", name, shown_url(hook.url), str(backlogs[name][0]), str(backlogs[name][1])]
        for name, hook in settings.webhooks.out.items()
    ]
    if rows:
        screen.table(["WAY", "NAME", "URL", "WAITING", "FAILED"], rows)
    else:
        screen.note("There are no webhooks. The settings file declares them: [webhooks.out.NAME].")


@webhooks.command("test", epilog=TEST)
@_name
@store_options
def test(options: CommandOptions, *, name: str) -> None:
    """Send a test to the outgoing webhook NAME, once, and print the answer."""
    from backstay.server.webhooks.outgoing_hooks import OutgoingHooks  # noqa: PLC0415  # it loads the HTTP client

    hook = _hook(options, name)
    found = asyncio.run(OutgoingHooks(options.settings).test(_owner(options, hook), name))
    if options.json:
        screen.print_json(found)
    else:
        screen.print_line(f"{'accepted' if found.accepted else 'not accepted'}: {found.answer}")
    if not found.accepted:
        raise click.exceptions.Exit(Exit.ERROR)


@webhooks.command("failed", epilog=FAILED)
@_name
@store_options
def failed(options: CommandOptions, *, name: str) -> None:
    """List what could not be delivered to the outgoing webhook NAME, newest first."""
    hook = _hook(options, name)
    with options.database() as store:
        found = store.run(notification_commands.dead_letters(WEBHOOK + name, owner=_owner(options, hook)))
    if options.json:
        screen.print_json({"failed": found})
    elif found:
        screen.table(["NOTICE", "FIRST SENT", "ATTEMPTS", "REASON"], [_row(one) for one in found])
    else:
        screen.note("Nothing failed.")


@webhooks.command("retry", epilog=RETRY)
@_name
@click.argument("notification", required=False)
@store_options
def retry(options: CommandOptions, *, name: str, notification: str | None) -> None:
    """Send again what could not be delivered to the outgoing webhook NAME: one NOTICE, or all.

    A running server sends it, under the same id as before.
    """
    from backstay.server.webhooks.outgoing_hooks import parse_notification_id  # noqa: PLC0415  # it loads the HTTP client

    hook = _hook(options, name)
    session, event = (None, None) if notification is None else parse_notification_id(notification)
    with options.database() as store:
        count = store.run(
            notification_commands.retry_notifications(
                WEBHOOK + name, owner=_owner(options, hook), session=session, event=event
            )
        )
    if options.json:
        screen.print_json({"retried": count})
    else:
        screen.print_line(f"{count} to be sent again")


@webhooks.command("secret", epilog=NEW)
@store_options
def secret(options: CommandOptions) -> None:
    """Print a new secret for a webhook. Both sides keep it; it is stored nowhere else."""
    made = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    if options.json:
        screen.print_json({"secret": made})
    else:
        screen.print_line(made)


def _hook(options: CommandOptions, name: str) -> OutgoingWebhook:
    try:
        return options.settings.webhooks.out[name]
    except KeyError:
        raise NotFound(f"no outgoing webhook {name!r}", hint="`backstay webhooks list` lists them.") from None


def _owner(options: CommandOptions, hook: OutgoingWebhook) -> str:
    return hook.owner or options.settings.owner


def _backlog(options: CommandOptions, store: Store, name: str, hook: OutgoingWebhook) -> tuple[int, int]:
    found = store.run(notification_commands.notification_backlog(WEBHOOK + name, owner=_owner(options, hook)))
    return found.waiting, found.failed


def _row(letter: DeadLetter) -> list[str]:
    return [letter.id, screen.moment(letter.at), str(letter.attempts), letter.reason]
