"""Reads of a turn whose holder is dead: never shown as running, whichever process ends it first."""

from collections.abc import Callable

import pytest

from backstay.model import event, message
from backstay.model.content import Text, ToolCall
from backstay.model.limits import Limits
from backstay.model.turn import Completed, OpenTurn
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import LEASE, ContractBase, OpenAnother, OpenHandle
from tests.contract.builders import AGENT, ME, bodies_of, enqueue, room, say, start

Look = Callable[[Store, OpenTurn], object]

# Every read whose answer depends on whether the turn still runs.
LOOKS: dict[str, Look] = {
    "session": lambda store, gone: store.session(gone.session, owner=ME),
    "list": lambda store, _: store.list(owner=ME),
    "at": lambda store, _: store.at(room(), owner=ME),
    "beginning_with": lambda store, gone: store.beginning_with(gone.session[:12], owner=ME),
    "ending_with": lambda store, gone: store.ending_with(gone.session[-12:], owner=ME),
    "turn": lambda store, gone: store.turn(gone.id, owner=ME),
    "requested": lambda store, _: store.requested("a request", owner=ME),
    "snapshot": lambda store, gone: store.snapshot(gone.session, owner=ME),
    "badges": lambda store, gone: store.badges([gone.session], owner=ME),
    "messages": lambda store, gone: store.messages(gone.session, owner=ME),
    "events_after": lambda store, gone: store.events_after(gone.session, owner=ME),
    "calls": lambda store, gone: store.calls(gone.id, owner=ME),
    "ledger": lambda store, gone: store.ledger(gone.id, owner=ME),
    "waiting": lambda store, gone: store.waiting(gone.session, owner=ME),
    "search": lambda store, _: store.search("words", owner=ME),
    "export": lambda store, gone: store.export(gone.session, owner=ME),
    "load": lambda store, _: store.load(),
    "has_work": lambda store, _: store.has_work([AGENT]),
}

every_look = pytest.mark.parametrize("look_at", LOOKS.values(), ids=LOOKS.keys())


class BusyClock(ManualClock):
    """A clock that lets something happen once, while a reader asks it whether a lease has lapsed."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] | None = None

    def boot(self) -> int:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().boot()


class GoneHolderContract(ContractBase):
    """Rules for reads of dead holders."""

    @pytest.fixture
    def gone(self, open_another: OpenAnother) -> OpenTurn:
        """A turn with some output and a tool call, whose holder is dead; another turn waits behind it."""
        holder = open_another()
        holder.submit(room(), "words", owner=ME, request_id="a request")
        proof = holder.claim([AGENT])
        assert proof is not None
        proof = say(holder, proof, Text("words that"), ToolCall(id="c", name="pay", arguments={}, approval=True))
        enqueue(holder, proof.session, "words to come")
        holder.close()
        return proof

    @pytest.fixture
    def clock_of_reader(self) -> BusyClock:
        """The clock of the reader."""
        return BusyClock()

    @pytest.fixture
    def reader(self, open_handle: OpenHandle, gone: OpenTurn, clock_of_reader: BusyClock) -> Store:
        """A handle that has read nothing yet."""
        return open_handle(clock=clock_of_reader, lease_seconds=LEASE, limits=Limits())

    @every_look
    def test_a_read_that_finds_a_dead_holder_shows_the_same_as_the_next_read(
        self, reader: Store, gone: OpenTurn, look_at: Look
    ) -> None:
        with reader:
            assert look_at(reader, gone) == look_at(reader, gone)
            assert reader.reap() == ()

    @every_look
    def test_a_read_shows_a_turn_as_ended_when_another_process_ended_it(
        self, reader: Store, other: Store, gone: OpenTurn, clock_of_reader: BusyClock, look_at: Look
    ) -> None:
        with reader:
            clock_of_reader.meanwhile = other.reap
            first = look_at(reader, gone)

            assert clock_of_reader.meanwhile is None, "the reader asked whether the holder lives"
            assert first == look_at(reader, gone)

    def test_a_read_shows_no_turn_that_began_meanwhile_and_lost_its_holder_too(
        self, reader: Store, open_another: OpenAnother, gone: OpenTurn, clock_of_reader: BusyClock
    ) -> None:
        def begin_another_and_go() -> None:
            successor = open_another()
            assert successor.claim([AGENT]) is not None
            successor.close()

        with reader:
            clock_of_reader.meanwhile = begin_another_and_go
            session = reader.session(gone.session, owner=ME)

        assert (session.running, session.waiting, session.turns) == (None, 0, 2)

    def test_a_turn_that_began_meanwhile_and_lives_is_shown(
        self, reader: Store, other: Store, gone: OpenTurn, clock_of_reader: BusyClock
    ) -> None:
        with reader:
            clock_of_reader.meanwhile = lambda: other.claim([AGENT])
            session = reader.session(gone.session, owner=ME)

        assert (session.holder, session.waiting, session.turns) == (other.worker, 0, 1)

    def test_a_repeated_request_answers_with_the_turn_as_it_ended(self, store: Store, gone: OpenTurn) -> None:
        repeated = store.submit(room(), "words", owner=ME, request_id="a request")

        assert repeated.repeated
        assert repeated.turn == store.turn(gone.id, owner=ME)
        assert repeated.session == store.session(gone.session, owner=ME)
        assert (repeated.turn.state, repeated.session.running) == ("ended", None)

    def test_the_turn_of_a_holder_that_is_gone_can_be_forgotten(self, store: Store, gone: OpenTurn) -> None:
        assert store.forget(gone.id, owner=ME).forgotten

    def test_finished_messages_behind_a_gone_holder_are_shown_as_ended(
        self, store: Store, open_another: OpenAnother
    ) -> None:
        holder = open_another()
        proof = start(holder, room("cellar"))
        behind = holder.record(proof.session, [message.user("said elsewhere")], owner=ME).turn
        holder.close()

        assert store.turn(behind.id, owner=ME).outcome == Completed()
        assert isinstance(bodies_of(store, proof.session)[-1], event.TurnRecorded)
