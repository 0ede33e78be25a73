"""Gateways: one poller at a time, and every received message is stored once, with its turn and the cursor."""

import pytest

from backstay.errors import (
    ConfigError,
    InvalidPayload,
    LeaseLost,
    NotFound,
    NothingToDo,
    QuotaExceeded,
    SessionBusy,
    TooLarge,
)
from backstay.model import message
from backstay.model.content import Part, Text
from backstay.model.event import TurnEdited, TurnHeld, TurnReleased
from backstay.model.gateways.arrival import Arrival, Received
from backstay.model.gateways.gateway import OpenGateway
from backstay.model.limits import Limits
from backstay.model.turn import Cancelled, Completed, TurnInfo
from backstay.store import Store, commands
from backstay.store.commands import gateway_commands
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import LEASE, ContractBase, OpenAnother
from tests.contract.builders import AGENT, ME, STRANGER, enqueue, events_of, new_session, room, run, start, texts

BOT = "telegram/7"
HOME = "42"


class ReceivedMessageContract(ContractBase):
    """The lease of a poller, and the inbox."""

    # --- the poller -------------------------------------------------------------------------------------------------

    def test_one_worker_polls_a_gateway_and_another_may_when_it_has_stopped(self, store: Store, other: Store) -> None:
        first = opened(store)

        assert other.run(gateway_commands.open_gateway(BOT, owner=ME)) is None
        assert store.run(gateway_commands.open_gateway(BOT, owner=ME)) is None
        store.run(gateway_commands.close_gateway(first))
        second = opened(other)

        assert (second.holder, second.fence) == (other.worker, first.fence + 1)
        with pytest.raises(LeaseLost):
            store.run(gateway_commands.renew_gateway(first))
        (found,) = store.run(gateway_commands.gateways(owner=ME))
        assert (found.name, found.holder) == (BOT, other.worker)

    def test_a_poller_that_is_closed_is_followed_at_once(self, open_another: OpenAnother, store: Store) -> None:
        gone = open_another()
        opened(gone)

        gone.close()

        assert opened(store).holder == store.worker

    def test_a_poller_that_sleeps_past_its_lease_writes_nothing_more(
        self, store: Store, other: Store, clock: ManualClock
    ) -> None:
        slow = opened(store)
        clock.advance(LEASE + 1)
        quick = opened(other)

        for late in (
            gateway_commands.receive(slow, hello(), cursor="9"),
            gateway_commands.move_cursor(slow, "9"),
            gateway_commands.close_gathering(slow, "chat"),
            gateway_commands.close_gateway(slow),
        ):
            with pytest.raises(LeaseLost):
                store.run(late)
        assert opened_cursor(other) == ""
        assert other.list(owner=ME).sessions == ()
        assert not received(other, quick, hello()).repeated

    def test_a_renewed_lease_lasts_longer(self, store: Store, other: Store, clock: ManualClock) -> None:
        proof = opened(store)
        clock.advance(LEASE - 1)
        proof = store.run(gateway_commands.renew_gateway(proof))
        clock.advance(LEASE - 1)

        assert other.run(gateway_commands.open_gateway(BOT, owner=ME)) is None
        received(store, proof, hello())

    def test_two_owners_may_have_a_gateway_of_one_name(self, store: Store) -> None:
        mine, theirs = opened(store), store.run(gateway_commands.open_gateway(BOT, owner=STRANGER))
        assert theirs is not None

        received(store, mine, hello(), cursor="1")

        assert not store.run(gateway_commands.receive(theirs, hello(), cursor="5")).repeated
        assert [gateway.cursor for gateway in store.run(gateway_commands.gateways(owner=ME))] == ["1"]
        assert len(store.list(owner=STRANGER).sessions) == 1

    # --- messages ---------------------------------------------------------------------------------------------------

    def test_a_message_is_stored_with_its_turn_and_the_cursor(self, store: Store, clock: ManualClock) -> None:
        proof = opened(store)

        turn = turn_of(received(store, proof, hello(), cursor="8"))

        assert (turn.state, turn.input, turn.agent) == ("waiting", (Text("hello"),), AGENT)
        assert store.requested(f"{BOT}/42/1", owner=ME) == turn
        (gateway,) = store.run(gateway_commands.gateways(owner=ME))
        assert (gateway.cursor, gateway.received_at) == ("8", clock.now())
        assert store.claim([AGENT]) is not None

    def test_a_message_that_is_received_again_is_the_same_turn(self, store: Store, other: Store) -> None:
        proof = opened(store)
        first = turn_of(received(store, proof, hello(), cursor="8"))
        claimed = store.claim([AGENT])
        assert claimed is not None
        store.finish(claimed, Completed(), bodies=[Text("hi")])
        store.run(gateway_commands.close_gateway(proof))

        again = received(other, opened(other), hello(text="edited since"), cursor="9")

        assert again.repeated
        assert turn_of(again).id == first.id
        assert store.session(first.session, owner=ME).waiting == 0
        assert opened_cursor(store) == "9"

    def test_a_message_whose_session_was_deleted_is_not_answered_again(self, store: Store) -> None:
        proof = opened(store)
        turn = turn_of(received(store, proof, hello()))
        store.delete(turn.session, owner=ME)

        assert received(store, proof, hello()) == Received(turn=None, repeated=True)
        assert store.list(owner=ME).sessions == ()

    def test_a_refused_message_changes_nothing_and_may_be_stored_without_a_turn(
        self, open_another: OpenAnother
    ) -> None:
        store = open_another(limits=Limits(message_bytes=100))
        proof = opened(store)

        with pytest.raises(TooLarge):
            received(store, proof, hello(text="x" * 101), cursor="8")
        assert opened_cursor(store) == ""
        stored = received(store, proof, hello(parts=()), cursor="8")

        assert stored == Received(turn=None)
        assert received(store, proof, hello(text="short")).repeated
        assert (opened_cursor(store), store.list(owner=ME).sessions) == ("0", ())

    def test_a_full_queue_refuses_a_message(self, open_another: OpenAnother) -> None:
        store = open_another(limits=Limits(waiting_turns=1))
        proof = opened(store)
        received(store, proof, hello())

        with pytest.raises(SessionBusy):
            received(store, proof, hello("2"))
        assert len(store.waiting(store.list(owner=ME).sessions[0].id, owner=ME)) == 1

    @pytest.mark.parametrize(
        "wrong",
        [
            {"id": ""},
            {"id": "x" * 2000},
            {"destination": ""},
            {"destination": "a\0b"},
            {"parts": ("hello",)},
            {"parts": (Text(" "),)},
            {"gathering": "a\0b"},
            {"files": "photo"},
            {"files": "photo", "gathering": "chat"},
            {"to": "nowhere"},
            {"place": 1.5},
        ],
        ids=[
            "no id",
            "a long id",
            "no destination",
            "a NUL in the destination",
            "text as parts",
            "blank text",
            "a NUL in the gathering",
            "files without a gathering",
            "files that no gathering waits for",
            "no session id",
            "half a place",
        ],
    )
    def test_an_invalid_message_is_rejected(self, store: Store, wrong: dict[str, object]) -> None:
        proof = opened(store)
        plain: dict[str, object] = {"id": "1", "to": room(), "destination": HOME, "parts": (Text("hello"),)}

        with pytest.raises((InvalidPayload, NotFound, TooLarge)):
            store.run(gateway_commands.receive(proof, Arrival(**(plain | wrong)), cursor="1"))  # type: ignore[arg-type]  # the point
        assert store.list(owner=ME).sessions == ()

    def test_the_poller_of_another_owner_reaches_no_session_of_ours(self, store: Store) -> None:
        theirs = store.run(gateway_commands.open_gateway(BOT, owner=STRANGER))
        assert theirs is not None
        session = new_session(store)

        with pytest.raises(NotFound):
            store.run(gateway_commands.receive(theirs, hello(to=session), cursor="1"))
        assert store.waiting(session, owner=ME) == ()

    def test_a_new_gateway_needs_room(self, open_another: OpenAnother) -> None:
        open_another().record(room(), [message.user("x")], owner=ME)
        store = open_another(limits=Limits(stored_bytes_per_owner=1))

        with pytest.raises(QuotaExceeded):
            store.run(gateway_commands.open_gateway(BOT, owner=ME))

    # --- actions ----------------------------------------------------------------------------------------------------

    def test_a_command_in_a_message_runs_once(self, store: Store) -> None:
        proof, session = opened(store), new_session(store)
        run(store, session, "one", "1")
        run(store, session, "two", "2")
        undo, asked = commands.undo(session, owner=ME), hello(to=session, parts=())

        store.run(gateway_commands.receive(proof, asked, cursor="1", action=undo))
        store.run(gateway_commands.receive(proof, asked, cursor="1", action=undo))

        assert texts(store, session) == ["one", "1"]

    def test_a_command_that_is_refused_is_not_received(self, store: Store) -> None:
        proof, session = opened(store), new_session(store)
        undo, asked = commands.undo(session, owner=ME), hello(to=session, parts=())

        with pytest.raises(NothingToDo):
            store.run(gateway_commands.receive(proof, asked, cursor="1", action=undo))

        assert opened_cursor(store) == ""
        assert not store.run(gateway_commands.receive(proof, asked, cursor="1")).repeated

    def test_a_command_of_another_owner_is_rejected(self, store: Store) -> None:
        proof, session = opened(store), new_session(store, owner=STRANGER)

        with pytest.raises(ConfigError):
            gateway_commands.receive(proof, hello(), cursor="1", action=commands.undo(session, owner=STRANGER))

    # --- gathering --------------------------------------------------------------------------------------------------

    def test_messages_of_a_gathering_become_one_turn_in_the_order_of_their_places(self, store: Store) -> None:
        proof = opened(store)

        first = received(store, proof, photo("20", "second"))
        second = received(store, proof, photo("10", "first"))
        third = received(store, proof, photo("30", "third"))

        (turn,) = {turn_of(found).id for found in (first, second, third)}
        assert (first.gathering, third.gathering) == ("chat", "chat")
        held = store.turn(turn, owner=ME)
        assert (held.held, held.input) == (True, (Text("first"), Text("second"), Text("third")))
        assert store.claim([AGENT]) is None
        assert received(store, proof, photo("20", "second")).repeated
        assert store.turn(turn, owner=ME) == held

        released = store.run(gateway_commands.close_gathering(proof, "chat"))
        assert released is not None
        assert (released.id, released.held) == (turn, False)
        claimed = store.claim([AGENT])
        assert claimed is not None
        assert claimed.input.text == "first\nsecond\nthird"
        kinds = [type(event.body) for event in events_of(store, held.session) if event.turn == turn]
        assert kinds[1:5] == [TurnHeld, TurnEdited, TurnEdited, TurnReleased]

    def test_a_message_after_the_end_of_a_gathering_is_a_turn_of_its_own(self, store: Store) -> None:
        proof = opened(store)
        first = turn_of(received(store, proof, photo("1")))
        store.run(gateway_commands.close_gathering(proof, "chat"))

        second = turn_of(received(store, proof, photo("2")))

        assert second.id != first.id
        assert [turn.held for turn in store.waiting(first.session, owner=ME)] == [False, True]
        assert store.run(gateway_commands.close_gathering(proof, "chat")) is not None
        assert store.run(gateway_commands.close_gathering(proof, "chat")) is None

    def test_a_plain_message_joins_an_open_gathering_and_opens_none(self, store: Store) -> None:
        proof = opened(store)
        plain = hello("9", gathering="chat", place=9)
        alone = received(store, proof, hello("0", gathering="chat"))
        album = received(store, proof, photo("5", "a photo"))

        joined = received(store, proof, plain)

        assert (alone.gathering, turn_of(alone).held) == (None, False)
        assert turn_of(joined).id == turn_of(album).id
        assert turn_of(joined).input == (Text("a photo"), Text("hello"))

    def test_a_gathering_waits_for_its_files(self, store: Store, other: Store) -> None:
        proof = opened(store)
        turn = turn_of(received(store, proof, photo("1", "[a.jpg]", files="file-a")))
        received(store, proof, photo("2", "[b.jpg]", files="file-b"))
        received(store, proof, photo("3", "what is this?"))
        assert store.run(gateway_commands.close_gathering(proof, "chat")) is None
        store.run(gateway_commands.close_gateway(proof))

        proof = opened(other)
        missing = other.run(gateway_commands.gathered(BOT, owner=ME))
        assert [(found.id, found.turn, found.files) for found in missing] == [
            ("1", turn.id, "file-a"),
            ("2", turn.id, "file-b"),
            ("3", turn.id, None),
        ]
        other.run(gateway_commands.fetched(proof, "2", [Text("b1"), Text("b2")]))
        other.run(gateway_commands.fetched(proof, "1", "a1"))
        repeated = other.run(gateway_commands.fetched(proof, "1", "a2"))

        assert repeated is not None
        assert repeated.input == (Text("a1"), Text("b1"), Text("b2"), Text("what is this?"))
        assert other.run(gateway_commands.close_gathering(proof, "chat")) is not None
        assert other.claim([AGENT]) is not None

    def test_a_gathering_may_end_without_its_files(self, store: Store) -> None:
        proof = opened(store)
        received(store, proof, photo("1", "[a.jpg]", files="file-a"))

        closed = store.run(gateway_commands.close_gathering(proof, "chat", anyway=True))

        assert closed is not None
        assert not closed.held
        assert store.run(gateway_commands.gathered(BOT, owner=ME)) == ()
        late = store.run(gateway_commands.fetched(proof, "1", "too late"))
        assert late is not None
        assert late.input == (Text("[a.jpg]"),)
        with pytest.raises(NotFound):
            store.run(gateway_commands.fetched(proof, "never received", "x"))

    def test_a_person_may_release_withdraw_or_edit_a_gathered_turn(self, store: Store) -> None:
        proof = opened(store)
        released = turn_of(received(store, proof, photo("1")))
        store.release(released.id, owner=ME)
        withdrawn = turn_of(received(store, proof, photo("2")))
        store.withdraw(withdrawn.id, owner=ME)
        edited = turn_of(received(store, proof, photo("3")))
        store.edit_waiting(edited.id, "in my own words", owner=ME)

        joined = turn_of(received(store, proof, photo("4", "more")))

        assert len({released.id, withdrawn.id, edited.id}) == 3
        assert (joined.id, joined.input) == (edited.id, (Text("in my own words"), Text("more")))
        assert store.turn(withdrawn.id, owner=ME).outcome == Cancelled("withdrawn")

    def test_a_gathered_turn_that_gets_too_long_is_followed_by_another(self, open_another: OpenAnother) -> None:
        store = open_another(limits=Limits(message_bytes=300))
        proof = opened(store)
        first = turn_of(received(store, proof, photo("1", "x" * 80)))

        second = turn_of(received(store, proof, photo("2", "y" * 80)))
        third = received(store, proof, photo("3", "z" * 80))

        assert second.id == first.id
        assert turn_of(third).id != first.id
        assert third.gathering == "chat"
        assert [turn.held for turn in store.waiting(first.session, owner=ME)] == [False, True]

    def test_a_gathering_in_a_busy_session_takes_its_place_in_the_queue(self, store: Store) -> None:
        proof, session = opened(store), new_session(store)
        running = start(store, session)
        gathered = turn_of(received(store, proof, photo("1", to=session)))
        later = enqueue(store, session)

        store.run(gateway_commands.close_gathering(proof, "chat"))

        following = store.finish(running, Completed(), bodies=[Text("ok")], agents=[AGENT]).opened
        assert following is not None
        assert following.id == gathered.id
        assert [turn.id for turn in store.waiting(session, owner=ME)] == [later.id]

    def test_deleting_a_session_ends_its_gathering(self, store: Store) -> None:
        proof, session = opened(store), new_session(store)
        received(store, proof, photo("1", to=session, files="file-a"))
        store.delete(session, owner=ME)

        assert store.run(gateway_commands.fetched(proof, "1", "a photo")) is None
        assert store.run(gateway_commands.close_gathering(proof, "chat", anyway=True)) is None
        other = turn_of(received(store, proof, photo("2", to=new_session(store))))
        assert other.input == (Text("a photo"),)


def opened(store: Store) -> OpenGateway:
    """The proof of this worker as the poller."""
    proof = store.run(gateway_commands.open_gateway(BOT, owner=ME))
    assert proof is not None, "no other worker polls"
    return proof


def opened_cursor(store: Store) -> str:
    """The stored cursor of the gateway."""
    (gateway,) = store.run(gateway_commands.gateways(owner=ME))
    return gateway.cursor


def received(store: Store, proof: OpenGateway, arrival: Arrival, cursor: str = "0") -> Received:
    """Receive a message."""
    return store.run(gateway_commands.receive(proof, arrival, cursor=cursor))


def turn_of(found: Received) -> TurnInfo:
    """The turn of a received message."""
    assert found.turn is not None
    return found.turn


def hello(
    id: str = "42/1",
    *,
    to: object = None,
    text: str = "hello",
    parts: tuple[Part, ...] | None = None,
    gathering: str | None = None,
    place: int = 0,
) -> Arrival:
    """A plain message."""
    return Arrival(
        id=id,
        to=room() if to is None else to,  # type: ignore[arg-type]  # an address or a session
        destination=HOME,
        parts=(Text(text),) if parts is None else parts,
        gathering=gathering,
        place=place,
    )


def photo(id: str, text: str = "a photo", *, to: object = None, files: str | None = None) -> Arrival:
    """A message of an album."""
    return Arrival(
        id=id,
        to=room() if to is None else to,  # type: ignore[arg-type]  # an address or a session
        destination=HOME,
        parts=(Text(text),),
        gathering="chat",
        gathers=True,
        place=int(id),
        files=files,
    )
