"""The contract: what every store must keep, whatever database it stands on. Needs pytest.

A backend's test file subclasses `StoreContract` under a name that pytest collects, and overrides one fixture:

    class TestMine(StoreContract):
        @pytest.fixture
        def open_handle(self, tmp_path: Path) -> OpenHandle:
            return partial(open_my_store, tmp_path / "mine")

It is called with `clock`, `lease_seconds` and `limits`, once for every holder that a test needs on one database.
"""

from backstay.testing.contract.base import ContractBase, OpenHandle
from backstay.testing.contract.blobs import BlobContract
from backstay.testing.contract.calls import CallContract
from backstay.testing.contract.chapters import ChapterContract
from backstay.testing.contract.compacting import CompactingContract
from backstay.testing.contract.deletion import DeletionContract
from backstay.testing.contract.expiry import ExpiryContract
from backstay.testing.contract.exporting import ExportContract
from backstay.testing.contract.filing import FilingContract
from backstay.testing.contract.history import HistoryContract
from backstay.testing.contract.inputs import InputContract
from backstay.testing.contract.leases import LeaseContract
from backstay.testing.contract.notes import NoteContract
from backstay.testing.contract.owners import OwnerContract
from backstay.testing.contract.proofs import ProofContract
from backstay.testing.contract.queue import QueueContract
from backstay.testing.contract.reading import ReadingContract
from backstay.testing.contract.record import RecordContract
from backstay.testing.contract.resuming import ResumeContract
from backstay.testing.contract.search import SearchContract
from backstay.testing.contract.sessions import SessionContract
from backstay.testing.contract.steering import SteeringContract
from backstay.testing.contract.tokens import TokenContract
from backstay.testing.contract.turns import TurnContract
from backstay.testing.contract.watching import WatchContract

__all__ = ["ContractBase", "OpenHandle", "StoreContract"]


class StoreContract(
    SessionContract,
    ExpiryContract,
    FilingContract,
    TurnContract,
    CallContract,
    SteeringContract,
    QueueContract,
    LeaseContract,
    ResumeContract,
    RecordContract,
    InputContract,
    OwnerContract,
    HistoryContract,
    CompactingContract,
    ProofContract,
    DeletionContract,
    ReadingContract,
    ChapterContract,
    WatchContract,
    BlobContract,
    SearchContract,
    ExportContract,
    TokenContract,
    NoteContract,
):
    """Every fact a store must keep true."""
