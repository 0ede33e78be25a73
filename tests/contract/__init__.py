"""The contract: the rules that every store keeps, on any engine. Needs pytest.

A backend's test file subclasses `StoreContract` under a name that pytest collects, and overrides one fixture:

    class TestMine(StoreContract):
        @pytest.fixture
        def open_handle(self, tmp_path: Path) -> OpenHandle:
            return partial(open_my_store, tmp_path / "mine")

It is called with `clock`, `lease_seconds` and `limits`, once for every holder that a test needs on one database.
"""

from tests.contract.base import ContractBase, OpenHandle
from tests.contract.documents.blobs import BlobContract
from tests.contract.documents.exports import ExportContract
from tests.contract.documents.transfers import TransferContract
from tests.contract.gateways.deliveries import DeliveryContract
from tests.contract.gateways.notices import NoticeContract
from tests.contract.gateways.notifications import NotificationContract
from tests.contract.gateways.pairing import PairingContract
from tests.contract.gateways.push import PushContract
from tests.contract.gateways.received_messages import ReceivedMessageContract
from tests.contract.history.compaction_turns import CompactingContract
from tests.contract.history.context_proofs import ProofContract
from tests.contract.history.history import HistoryContract
from tests.contract.invalid_input import InputContract
from tests.contract.reads.reads import ReadingContract
from tests.contract.reads.search import SearchContract
from tests.contract.reads.snapshots import SnapshotContract
from tests.contract.reads.watches import WatchContract
from tests.contract.schedules.firings import FiringContract
from tests.contract.schedules.schedules import ScheduleContract
from tests.contract.sessions.deletion import DeletionContract
from tests.contract.sessions.expiry import ExpiryContract
from tests.contract.sessions.metadata import NoteContract
from tests.contract.sessions.organising import FilingContract
from tests.contract.sessions.owner_totals import TotalsContract
from tests.contract.sessions.owners import OwnerContract
from tests.contract.sessions.served_agents import ServedAgentContract
from tests.contract.sessions.sessions import SessionContract
from tests.contract.sessions.tokens import TokenContract
from tests.contract.turns.dead_holders import GoneHolderContract
from tests.contract.turns.held_turns import HoldContract
from tests.contract.turns.leases import LeaseContract
from tests.contract.turns.lost_events import LostTailContract
from tests.contract.turns.queue import QueueContract
from tests.contract.turns.recorded_turns import RecordContract
from tests.contract.turns.resume import ResumeContract
from tests.contract.turns.steering import SteeringContract
from tests.contract.turns.tool_calls import CallContract
from tests.contract.turns.turns import TurnContract

__all__ = ["ContractBase", "OpenHandle", "StoreContract"]


class StoreContract(
    SessionContract,
    ExpiryContract,
    ServedAgentContract,
    TotalsContract,
    FilingContract,
    TurnContract,
    LostTailContract,
    CallContract,
    SteeringContract,
    QueueContract,
    LeaseContract,
    GoneHolderContract,
    ResumeContract,
    RecordContract,
    InputContract,
    OwnerContract,
    HistoryContract,
    CompactingContract,
    ProofContract,
    DeletionContract,
    ReadingContract,
    SnapshotContract,
    WatchContract,
    BlobContract,
    SearchContract,
    ExportContract,
    TransferContract,
    HoldContract,
    TokenContract,
    NoteContract,
    ScheduleContract,
    FiringContract,
    ReceivedMessageContract,
    DeliveryContract,
    PairingContract,
    NoticeContract,
    NotificationContract,
    PushContract,
):
    """Every fact a store must keep true."""
