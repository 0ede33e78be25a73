"""The base of all parts of the contract: a clock, a store, and further handles on it."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from backstay.clock import Clock
from backstay.model.limits import Limits
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock

_PARTS = [path.relative_to(Path(__file__).parent) for path in Path(__file__).parent.rglob("*.py")]

# Before the parts are imported, so that a fact that fails shows the values it compared.
pytest.register_assert_rewrite(
    *(".".join((__package__, *part.with_suffix("").parts)) for part in _PARTS if part != Path("base.py"))
)

LEASE = 30.0


class OpenHandle(Protocol):
    """How a backend opens one more handle on the database of the test that runs."""

    def __call__(self, *, clock: Clock, lease_seconds: float, limits: Limits) -> Store: ...


class OpenAnother(Protocol):
    """Opens one more holder on the same database; the test need not close it."""

    def __call__(self, *, lease_seconds: float = LEASE, limits: Limits | None = None) -> Store: ...


class ContractBase:
    """A backend overrides `open_handle`; the rest follows from it."""

    @pytest.fixture
    def open_handle(self) -> OpenHandle:
        """Must be overridden: opens a handle on a database that is new in every test and shared within it."""
        raise NotImplementedError("override the fixture open_handle in the class that runs the contract")

    @pytest.fixture
    def clock(self) -> ManualClock:
        """The one clock of the machine that every handle runs on."""
        return ManualClock()

    @pytest.fixture
    def open_another(self, open_handle: OpenHandle, clock: ManualClock) -> Iterator[OpenAnother]:
        """Opens more handles, each a holder of its own, and closes them all when the test is over."""
        with ExitStack() as opened:

            def open_another(*, lease_seconds: float = LEASE, limits: Limits | None = None) -> Store:
                handle = open_handle(clock=clock, lease_seconds=lease_seconds, limits=limits or Limits())
                return opened.enter_context(handle)

            yield open_another

    @pytest.fixture
    def store(self, open_another: OpenAnother) -> Store:
        """The first handle."""
        return open_another()

    @pytest.fixture
    def other(self, open_another: OpenAnother, store: Store) -> Store:
        """A second handle on the same database: another holder."""
        return open_another()
