"""Gateway operations: reports, checks, and people who are let in by a code."""

import os
from typing import Annotated

import msgspec
from msgspec import Meta

from backstay.gateways.configured_gateways import examine_gateways
from backstay.gateways.gateway_status import GatewayStatus
from backstay.model.gateways.gateway_report import GatewayReport, KnownPerson
from backstay.model.operations.findings import Level
from backstay.server.http.api_request import ApiRequest, ApiResponse, NoInput
from backstay.server.http.operation import AnyOperation, Operation
from backstay.server.http.problems import forbidden
from backstay.store.commands.gateways import pairing_commands
from backstay.store.commands.gateways.gateway_reports import gateway_reports


class GatewayList(msgspec.Struct, frozen=True, kw_only=True):
    """The caller's gateways. `checkable` means that the caller may check those that this server runs."""

    gateways: tuple[GatewayReport, ...]
    checkable: bool


class GatewayFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One result of a check. A problem has a hint."""

    about: str
    level: Level
    detail: str
    hint: str


class GatewayCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a check."""

    findings: tuple[GatewayFinding, ...]


class PairingCode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A code that a gateway gave to a person."""

    code: Annotated[str, Meta(min_length=1, max_length=100)]


class InvitedGateway(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway that gives codes, until this time in milliseconds since 1970 (UTC)."""

    name: str
    pairing_until: int | None


async def list_gateways(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """List the caller's gateways, and whether messages reach them."""
    own = {one.status.name: one.status for one in call.service.gateways} if _runs_here(call) else {}
    stored = {one.name: one for one in await call.run(gateway_reports(owner=call.owner))}
    missing = [name for name in own if name not in stored]
    reports = [_with_status(one, own.get(one.name)) for one in stored.values()]
    reports += [_with_status(_unstored(name), own[name]) for name in missing]
    checkable = bool(own) and call.caller.operator
    return ApiResponse(value=GatewayList(gateways=tuple(reports), checkable=checkable))


async def check_gateways(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Check the gateways that this server runs. It receives no messages."""
    if not call.caller.operator:
        raise forbidden("only the operator may check gateways", "Use a token of the server's owner.")
    if not call.service.gateways:
        return ApiResponse(value=GatewayCheck(findings=()))
    reports = await call.run(gateway_reports(owner=call.service.settings.owner))
    found = await examine_gateways(call.service.settings, os.environ, reports)
    findings = tuple(
        GatewayFinding(about=one.about, level=one.level, detail=one.detail, hint=one.hint) for one in found
    )
    return ApiResponse(value=GatewayCheck(findings=findings))


async def pair_person(call: ApiRequest[PairingCode, NoInput]) -> ApiResponse:
    """Let the person in who received this code."""
    one = await call.run(pairing_commands.confirm_code(_gateway(call), call.body.code, owner=call.owner))
    return ApiResponse(value=KnownPerson(person=one.person, name=one.name, paired_at=one.paired_at, code_until=None))


async def invite_person(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Let a gateway give codes to further people for a while."""
    one = await call.run(pairing_commands.invite(_gateway(call), owner=call.owner))
    return ApiResponse(value=InvitedGateway(name=one.name, pairing_until=one.pairing_until))


async def remove_person(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Let a person in no longer."""
    one = await call.run(pairing_commands.remove_person(_gateway(call), call.named("person"), owner=call.owner))
    return ApiResponse(
        value=KnownPerson(person=one.person, name=one.name, paired_at=one.paired_at, code_until=one.code_until)
    )


def _runs_here(call: ApiRequest[NoInput, NoInput]) -> bool:
    return call.owner == call.service.settings.owner


def _gateway(call: "ApiRequest[NoInput, NoInput] | ApiRequest[PairingCode, NoInput]") -> str:
    return f"{call.named('platform')}/{call.named('account')}"


def _unstored(name: str) -> GatewayReport:
    """The report of a gateway that has never polled."""
    return GatewayReport(
        name=name,
        state="stopped",
        problem="",
        received_at=None,
        answered_at=None,
        poller=None,
        pairing_until=None,
        people=(),
    )


def _with_status(report: GatewayReport, status: GatewayStatus | None) -> GatewayReport:
    """Add why this process does not poll, if no process does."""
    if status is None or report.poller is not None or status.state not in ("refused", "failing"):
        return report
    return msgspec.structs.replace(report, state="failing", problem=status.problem)


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/api/gateways",
        name="list_gateways",
        summary="List the caller's gateways, whether messages reach them, and who was let in.",
        run=list_gateways,
        body=NoInput,
        query=NoInput,
        answer=GatewayList,
    ),
    Operation(
        method="POST",
        path="/api/gateways/check",
        name="check_gateways",
        summary="Check token, webhook, permissions, people, messages and poller of the gateways that this server runs.",
        run=check_gateways,
        body=NoInput,
        query=NoInput,
        answer=GatewayCheck,
        problems=(403,),
    ),
    Operation(
        method="POST",
        path="/api/gateways/{platform}/{account}/pair",
        name="pair_person",
        summary="Let the person in to whom the gateway gave this code.",
        run=pair_person,
        body=PairingCode,
        query=NoInput,
        answer=KnownPerson,
    ),
    Operation(
        method="POST",
        path="/api/gateways/{platform}/{account}/invite",
        name="invite_person",
        summary="Let the gateway give codes to further people for 15 minutes, or until one is confirmed.",
        run=invite_person,
        body=NoInput,
        query=NoInput,
        answer=InvitedGateway,
    ),
    Operation(
        method="DELETE",
        path="/api/gateways/{platform}/{account}/people/{person}",
        name="remove_person",
        summary="Let a person in no longer, or take back a code.",
        run=remove_person,
        body=NoInput,
        query=NoInput,
        answer=KnownPerson,
    ),
)
