"""The contract: what every store must keep, whatever database it stands on. Needs pytest.

A backend's test file subclasses `StoreContract` under a name that pytest collects, and overrides one fixture:

    class TestMine(StoreContract):
        @pytest.fixture
        def open_handle(self, tmp_path: Path) -> OpenHandle:
            return partial(open_my_store, tmp_path / "mine")

It is called with `clock`, `lease_seconds` and `limits`, once for every holder that a test needs on one database.
"""

from tests.contract.base import ContractBase, OpenHandle
from tests.contract.blobs import BlobContract
from tests.contract.compaction_turns import CompactingContract
from tests.contract.context_proofs import ProofContract
from tests.contract.dead_holders import GoneHolderContract
from tests.contract.deletion import DeletionContract
from tests.contract.expiry import ExpiryContract
from tests.contract.exports import ExportContract
from tests.contract.held_turns import HoldContract
from tests.contract.history import HistoryContract
from tests.contract.invalid_input import InputContract
from tests.contract.leases import LeaseContract
from tests.contract.lost_events import LostTailContract
from tests.contract.metadata import NoteContract
from tests.contract.organising import FilingContract
from tests.contract.owner_totals import TotalsContract
from tests.contract.owners import OwnerContract
from tests.contract.queue import QueueContract
from tests.contract.reads import ReadingContract
from tests.contract.recorded_turns import RecordContract
from tests.contract.resume import ResumeContract
from tests.contract.search import SearchContract
from tests.contract.served_agents import ServedAgentContract
from tests.contract.sessions import SessionContract
from tests.contract.snapshots import SnapshotContract
from tests.contract.steering import SteeringContract
from tests.contract.tokens import TokenContract
from tests.contract.tool_calls import CallContract
from tests.contract.transfers import TransferContract
from tests.contract.turns import TurnContract
from tests.contract.watches import WatchContract

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
):
    """Every fact a store must keep true."""
