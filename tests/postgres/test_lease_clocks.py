"""Leases and adjustable clocks: neither the server's clock nor another machine's ends a lease."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from urllib.parse import quote

import psycopg
import pytest

from backstay.clock import Clock, SystemClock
from backstay.model.content import Text
from backstay.model.ids import TurnId
from backstay.model.turn import Completed, Interrupted, OpenTurn
from backstay.store import Store, open_store
from backstay.store.database_upkeep import checkup
from backstay.testing import ManualClock
from tests.server.api_calls import until

ME = "me"
LEASE = 30.0
HOUR = 3600

# An adjustable clock replaces the server's own one for connections that find this schema first.
_SETTABLE = """
CREATE SCHEMA store;
CREATE SCHEMA clocks;
CREATE TABLE clocks.shift (seconds float8);
INSERT INTO clocks.shift VALUES (0);
CREATE FUNCTION clocks.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
    'SELECT pg_catalog.clock_timestamp() + make_interval(secs => (SELECT seconds FROM clocks.shift))';
"""


class SettableServer:
    """A database whose server's clock the test sets."""

    def __init__(self, url: str) -> None:
        with psycopg.connect(url) as connection:
            connection.execute(_SETTABLE)
        self._plain = url
        self.url = f"{url}?options={quote('-csearch_path=store,clocks,pg_catalog')}"

    def jump(self, seconds: float) -> None:
        """Set the server's clock ahead, or back."""
        with psycopg.connect(self._plain) as connection:
            connection.execute("UPDATE clocks.shift SET seconds = seconds + %s", (seconds,))


@pytest.fixture
def server(new_database: Callable[[], str]) -> SettableServer:
    return SettableServer(new_database())


def begin(store: Store, text: str = "hello") -> OpenTurn:
    """A turn that this store holds."""
    opened = store.submit(store.create(owner=ME).id, text, owner=ME, start=True).opened
    assert opened is not None
    return opened


# --- the server's clock ---------------------------------------------------------------------------------------------


def test_the_clock_of_the_database_server_is_used(server: SettableServer) -> None:
    with open_store(server.url) as store:
        before = store.create(owner=ME).created_at
        server.jump(HOUR)
        assert store.create(owner=ME).created_at - before >= HOUR * 1000


def test_a_jump_ahead_of_the_servers_clock_ends_no_living_holders_turn(server: SettableServer) -> None:
    with open_store(server.url, lease_seconds=1e6) as store, open_store(server.url) as other:
        proof = begin(store)
        server.jump(1e7)

        # A write gives the other store the time of the server.
        other.create(owner=ME)
        assert other.session(proof.session, owner=ME).running == proof.id
        assert other.reap() == ()
        assert store.finish(proof, Completed()).turn.outcome == Completed()


def test_a_jump_back_of_the_servers_clock_keeps_no_dead_holders_session(server: SettableServer) -> None:
    with open_store(server.url, lease_seconds=0.5) as store, open_store(server.url) as other:
        proof = begin(store)
        server.jump(-HOUR)
        other.create(owner=ME)

        until(lambda: proof.id in other.reap(), "a silent holder that is missed")
        assert isinstance(other.turn(proof.id, owner=ME).outcome, Interrupted)


# --- other machines -------------------------------------------------------------------------------------------------


class Machines:
    """Opens stores on machines of the same database, each with clocks of its own."""

    def __init__(self, url: str, opened: ExitStack) -> None:
        self._url, self._opened = url, opened

    def open(self, clock: Clock, lease_seconds: float = LEASE) -> Store:
        return self._opened.enter_context(open_store(self._url, clock=clock, lease_seconds=lease_seconds))


@pytest.fixture
def machines(empty_database: str) -> Iterator[Machines]:
    with ExitStack() as opened:
        yield Machines(empty_database, opened)


@pytest.fixture
def here() -> ManualClock:
    """The clocks of the machine that holds."""
    return ManualClock(boot=9_000_000, boot_id="here")


@pytest.fixture
def there() -> ManualClock:
    """The clocks of the machine that looks."""
    return ManualClock(boot=1_000, boot_id="there")


def test_another_machines_holder_counts_as_dead_once_it_was_watched_for_its_lease(
    machines: Machines, here: ManualClock, there: ManualClock
) -> None:
    holder, observer = machines.open(here), machines.open(there)
    proof = begin(holder)

    there.advance(10 * LEASE)
    # However old the lease is, this is the first look.
    assert observer.reap() == ()
    there.advance(LEASE - 0.001)
    assert observer.session(proof.session, owner=ME).running == proof.id
    there.advance(0.001)
    assert observer.reap() == (proof.id,)
    assert isinstance(observer.turn(proof.id, owner=ME).outcome, Interrupted)


@pytest.mark.parametrize("keep", ["renew", "checkpoint"])
def test_each_sign_of_life_starts_the_watch_of_another_machine_again(
    machines: Machines, here: ManualClock, there: ManualClock, keep: str
) -> None:
    holder, observer = machines.open(here), machines.open(there)
    proof = begin(holder)
    for _ in range(3):
        assert observer.reap() == ()
        there.advance(LEASE - 0.001)
        here.advance(1)
        proof = holder.renew(proof).open if keep == "renew" else holder.checkpoint(proof, [Text("on ")]).open

    there.advance(LEASE)
    assert observer.reap() == ()
    there.advance(LEASE)
    assert observer.reap() == (proof.id,)


def test_no_jump_of_a_wall_clock_ends_a_lease_on_another_machine(
    machines: Machines, here: ManualClock, there: ManualClock
) -> None:
    holder, observer = machines.open(here), machines.open(there)
    proof = begin(holder)
    assert observer.reap() == ()

    for clock in (here, there):
        clock.set_wall(clock.now() + 1_000 * HOUR)
    assert observer.reap() == ()
    for clock in (here, there):
        clock.set_wall(clock.now() - 2_000 * HOUR)
    there.advance(LEASE)
    assert observer.reap() == (proof.id,)


def test_a_lease_lasts_as_long_as_its_holder_chose_on_every_machine(
    machines: Machines, here: ManualClock, there: ManualClock
) -> None:
    holder, observer = machines.open(here, lease_seconds=100), machines.open(there, lease_seconds=1)
    proof = begin(holder)
    assert observer.reap() == ()

    there.advance(99.999)
    assert observer.reap() == ()
    there.advance(0.001)
    assert observer.reap() == (proof.id,)


def test_a_holder_that_closes_is_noticed_at_once_on_every_machine(
    machines: Machines, here: ManualClock, there: ManualClock
) -> None:
    holder, observer = machines.open(here), machines.open(there)
    proof = begin(holder)
    holder.close()

    assert observer.reap() == (proof.id,)


def test_one_read_reports_turns_held_on_other_machines_separately(
    machines: Machines, here: ManualClock, empty_database: str
) -> None:
    begin(machines.open(here))
    begin(machines.open(SystemClock()))

    (leases,) = [
        found for found in checkup(empty_database, quick=True, progress=lambda *_: None) if found.about == "leases"
    ]

    assert leases.level == "fine"
    assert leases.detail.startswith("1 turn running, held by living processes; 1 turn on other machines")


# --- commands that look once ----------------------------------------------------------------------------------------


def sightings_in(url: str) -> int:
    with psycopg.connect(url) as connection:
        return len(connection.execute("SELECT 1 FROM sightings").fetchall())


def look_once(url: str, clock: ManualClock) -> tuple[TurnId, ...]:
    """Open the store, read, and close it again, as a command does; returns the turns that were ended."""
    with open_store(url, clock=clock) as store:
        return store.reap()


def test_a_second_command_after_the_lease_time_ends_the_sighted_turn(
    machines: Machines, here: ManualClock, there: ManualClock, empty_database: str
) -> None:
    proof = begin(machines.open(here))
    assert look_once(empty_database, there) == ()

    there.advance(LEASE - 0.001)
    assert look_once(empty_database, there) == ()
    there.advance(0.001)
    assert look_once(empty_database, there) == (proof.id,)


def test_a_sighting_applies_to_one_lease_and_one_machine(
    machines: Machines, here: ManualClock, there: ManualClock, empty_database: str
) -> None:
    holder = machines.open(here)
    proof = begin(holder)
    elsewhere = ManualClock(boot=7, boot_id="elsewhere")
    assert look_once(empty_database, there) == ()
    here.advance(1)
    proof = holder.renew(proof).open

    there.advance(LEASE)
    elsewhere.advance(10 * LEASE)
    assert look_once(empty_database, elsewhere) == ()
    assert look_once(empty_database, there) == ()
    there.advance(LEASE)
    assert look_once(empty_database, there) == (proof.id,)


def test_sightings_of_ended_leases_are_deleted(
    machines: Machines, here: ManualClock, there: ManualClock, empty_database: str
) -> None:
    holder = machines.open(here)
    proof = begin(holder)
    look_once(empty_database, there)
    assert sightings_in(empty_database) == 1

    holder.finish(proof, Completed())
    holder.collect()

    assert sightings_in(empty_database) == 0
