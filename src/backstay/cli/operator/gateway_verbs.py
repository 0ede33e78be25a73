"""`backstay gateway`: runs a chat platform, shows what runs, checks it, and lets people in."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import msgspec

from backstay.cli.options import CommandOptions, chosen, settings_options, store_options
from backstay.cli.output import safe_text, screen
from backstay.cli.output.exit_status import Exit
from backstay.cli.output.findings_list import print_findings, print_verdict
from backstay.config import GatewaySettings, Settings, without_secrets
from backstay.errors import NotFound
from backstay.model.gateways.gateway import GatewayPerson
from backstay.model.gateways.gateway_report import GatewayReport, KnownPerson
from backstay.model.operations.findings import Finding
from backstay.store import Store
from backstay.store.commands.gateways import pairing_commands
from backstay.store.commands.gateways.gateway_reports import gateway_reports

EXAMPLES = """\b
Examples:
  backstay gateway
  backstay gateway telegram --token-file ~/bot-token --allow-user 123456789
  backstay gateway doctor
  backstay gateway pair ABCD-2345
"""
TELEGRAM = """\b
Examples:
  BACKSTAY_TELEGRAM_TOKEN=… backstay gateway telegram
  backstay gateway telegram --token-file ~/bot-token --allow-user 123456789
  backstay gateway telegram --token-file ~/bot-token --allow-chat=-1001234567890 --members own
"""
LIST = """\b
Examples:
  backstay gateway list
  backstay gateway list --json | jq '.gateways[] | select(.state != "polling")'
"""
DOCTOR = """\b
Examples:
  backstay gateway doctor
  backstay gateway doctor --token-file ~/bot-token
  backstay gateway doctor --fix

Exit status: 0 nothing is wrong, 1 error, 2 wrong usage, 6 a problem was found.
"""
PAIR = """\b
Examples:
  backstay gateway pair ABCD-2345
"""
INVITE = """\b
Examples:
  backstay gateway invite
  backstay gateway invite --gateway telegram/123456
"""
REMOVE = """\b
Examples:
  backstay gateway remove 123456789
"""

_name = click.option("--gateway", "name", metavar="NAME", help="The gateway, if there are several.")
_token_file = click.option("--token-file", help="The file with the token. [default: BACKSTAY_TELEGRAM_TOKEN]")
_api_server = click.option("--api-server", metavar="URL", help="Another server of the Bot API.")


@click.group(
    epilog=EXAMPLES, invoke_without_command=True, short_help="Let a chat platform talk to the agent, such as Telegram."
)
@click.pass_context
def gateway(context: click.Context) -> None:
    """Let a chat platform talk to the agent, such as Telegram. Without a command, list the gateways."""
    if context.invoked_subcommand is None:
        context.invoke(list_gateways)


# --- run ------------------------------------------------------------------------------------------------------------


@gateway.command("telegram", epilog=TELEGRAM)
@settings_options
@_token_file
@_api_server
@click.option(
    "--allow-user", "allow_users", multiple=True, metavar="ID", help="A person who may write; '*': everybody."
)
@click.option("--allow-chat", "allow_chats", multiple=True, metavar="ID", help="A chat in which everybody may write.")
@click.option("--groups", type=click.Choice(["mentioned", "all"]), help="Which messages of groups are answered.")
@click.option("--members", type=click.Choice(["shared", "own"]), help="Whether members of a group share a session.")
@click.option("--gather-texts/--no-gather-texts", default=None, help="Make texts that follow each other one turn.")
@click.option(
    "--agent",
    multiple=True,
    metavar="[NAME=]MODULE:ATTR|URL#MODEL|acp:COMMAND|scripted",
    help="The agent that answers, as for `serve`.",
)
@click.option("--agent-directory", help="The directory in which an ACP agent works.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="[default: info]")
@click.option("--log-format", type=click.Choice(["json", "text"]), help="[default: json]")
@click.option("--json", "as_json", is_flag=True, help="Print the gateway and its store as one JSON object.")
def telegram(
    file: Path | None,
    *,
    db: str | None,
    agent: tuple[str, ...],
    agent_directory: str | None,
    log_level: str | None,
    log_format: str | None,
    as_json: bool,
    **bot: object,
) -> None:
    """Receive messages of a Telegram bot and send the answers, until stopped.

    The token is read from a file or from BACKSTAY_TELEGRAM_TOKEN. Other processes see the arguments of a command, so
    none of them is the token. Without --allow-user and --allow-chat, people are let in by a code.
    """
    # Imported here: only this command runs agents.
    from backstay.agents.selection.selection import select_agent  # noqa: PLC0415
    from backstay.server.process.gateway_process import run_telegram  # noqa: PLC0415

    flags = {"db": db, "agent": agent, "agent_directory": agent_directory, "log_level": log_level}
    effective = chosen(file, **flags, log_format=log_format, **_settings_of(bot))
    selection = select_agent(effective, os.environ)

    def announce(name: str) -> None:
        db = without_secrets(effective.settings.db)
        if as_json:
            screen.print_json({"gateway": name, "store": db, "why": selection.why})
        else:
            screen.print_line(selection.why)
            screen.facts([("gateway", name), ("store", db)])
        sys.stdout.flush()

    run_telegram(effective.settings, selection, announce)


def _settings_of(bot: Mapping[str, object]) -> dict[str, object]:
    """The options of the bot by the names of settings."""
    names = {"api_server": "server"}
    return {f"gateways.telegram.{names.get(name, name)}": value for name, value in bot.items()}


# --- show and check -------------------------------------------------------------------------------------------------


@gateway.command("list", epilog=LIST)
@store_options
def list_gateways(options: CommandOptions) -> None:
    """List the gateways, whether messages reach them, and the people who were let in."""
    reports = _reports(options)
    if options.json:
        screen.print_json({"gateways": reports})
        return
    if not reports:
        screen.note("There are no gateways. `backstay gateway telegram` runs one.")
        return
    screen.table(["GATEWAY", "STATE", "RECEIVED", "ANSWERED", "POLLER", "PROBLEM"], [_row(one) for one in reports])
    people = [(report, one) for report in reports for one in report.people]
    if people:
        screen.print_line()
        screen.table(["PERSON", "NAME", "LET IN", "GATEWAY"], [_person(report, one) for report, one in people])


def _row(one: GatewayReport) -> list[str]:
    moments = [screen.moment(one.received_at) or "never", screen.moment(one.answered_at) or "never"]
    return [one.name, one.state, *moments, one.poller or "", one.problem]


def _person(report: GatewayReport, one: KnownPerson) -> list[str]:
    return [one.person, one.name, screen.moment(one.paired_at) or "has a code", report.name]


@gateway.command("doctor", epilog=DOCTOR)
@_token_file
@_api_server
@click.option("--fix", is_flag=True, help="Remove a webhook, which prevents polling.")
@store_options
def doctor(options: CommandOptions, *, token_file: str | None, api_server: str | None, fix: bool) -> None:
    """Check the Telegram bot: token, webhook, permissions, people, messages and poller.

    It receives no messages, so a running gateway is not disturbed.
    """
    telegram = options.settings.gateways.telegram
    telegram = msgspec.structs.replace(
        telegram, token_file=token_file or telegram.token_file, server=api_server or telegram.server
    )
    settings = msgspec.structs.replace(options.settings, gateways=GatewaySettings(telegram=telegram))
    findings = _examine(settings, _reports(options), fix=fix)
    wrong = any(one.level == "wrong" for one in findings)
    if options.json:
        screen.print_json({"sound": not wrong, "findings": findings})
    else:
        print_findings(findings)
        print_verdict(findings)
    if wrong:
        click.get_current_context().exit(Exit.UNSOUND)


def _examine(settings: Settings, reports: tuple[GatewayReport, ...], *, fix: bool) -> list[Finding]:
    # Imported here: only this command talks to the platform.
    from backstay.gateways.configured_gateways import examine_gateways  # noqa: PLC0415

    return asyncio.run(examine_gateways(settings, os.environ, reports, fix=fix))


def _reports(options: CommandOptions) -> tuple[GatewayReport, ...]:
    if not options.has_store():
        return ()
    with options.database() as store:
        return store.run(gateway_reports(owner=options.owner))


# --- people ---------------------------------------------------------------------------------------------------------


@gateway.command("pair", epilog=PAIR)
@click.argument("code")
@_name
@store_options
def pair(options: CommandOptions, *, code: str, name: str | None) -> None:
    """Let the person in to whom the bot gave this CODE."""
    with options.database() as store:
        where = _only(store, options.owner, name)
        person = store.run(pairing_commands.confirm_code(where, code, owner=options.owner))
    _print_person(options, where, person, f"{person.name} ({person.person}) may write to {where} now")


@gateway.command("invite", epilog=INVITE)
@_name
@store_options
def invite(options: CommandOptions, *, name: str | None) -> None:
    """Let the bot give codes to further people for 15 minutes, or until one is confirmed."""
    with options.database() as store:
        where = _only(store, options.owner, name)
        store.run(pairing_commands.invite(where, owner=options.owner))
    if options.json:
        screen.print_json({"gateway": where})
    else:
        screen.print_line(f"{where} gives codes for 15 minutes. Write to the bot, and confirm the code.")


@gateway.command("remove", epilog=REMOVE)
@click.argument("person")
@_name
@store_options
def remove(options: CommandOptions, *, person: str, name: str | None) -> None:
    """Let a PERSON in no longer: the id that `backstay gateway` shows."""
    with options.database() as store:
        where = _only(store, options.owner, name)
        removed = store.run(pairing_commands.remove_person(where, person, owner=options.owner))
    _print_person(options, where, removed, f"{removed.name} ({removed.person}) may no longer write to {where}")


def _print_person(options: CommandOptions, where: str, one: GatewayPerson, sentence: str) -> None:
    if options.json:
        screen.print_json({"gateway": where, "person": one.person, "name": one.name})
    else:
        screen.print_line(safe_text.one_line(sentence))


def _only(store: Store, owner: str, name: str | None) -> str:
    """The named gateway, or the only one."""
    if name is not None:
        return name
    names = [one.name for one in store.run(gateway_reports(owner=owner))]
    if len(names) == 1:
        return names[0]
    if not names:
        raise NotFound("there is no gateway", hint="`backstay gateway telegram` runs one.")
    raise NotFound(f"there are several gateways: {', '.join(names)}", hint="Name one with --gateway.")
