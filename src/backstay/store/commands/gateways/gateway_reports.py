"""The command that reports about gateways."""

from backstay.model.gateways.gateway_report import GatewayReport, report_of
from backstay.model.gateways.notification import sends_notifications
from backstay.store.commands.command import Read
from backstay.store.engine import Transaction
from backstay.store.verbs.gateways import gateway_row, pairing


def gateway_reports(*, owner: str) -> Read[tuple[GatewayReport, ...]]:
    """Report about the gateways of an owner: whether messages reach them, and who was let in.

    Args:
        owner: The owner.

    Returns:
        The reports, in the order of the names.
    """
    return Read(name="gateway_reports", owner=owner, snapshot=False, verb=lambda tx: _reports(tx, owner))


def _reports(tx: Transaction, owner: str) -> tuple[GatewayReport, ...]:
    return tuple(
        report_of(gateway, pairing.people(tx, owner, gateway.name), tx.now)
        for gateway in gateway_row.of_owner(tx, owner)
        if not sends_notifications(gateway.name)
    )
