"""Deliveries: each ended turn of a session is due once for each destination, and every part has a receipt."""

import msgspec
import pytest

from backstay.errors import Conflict, InvalidPayload, LeaseLost, NotFound
from backstay.model import message
from backstay.model.addresses.address import ChatAddress
from backstay.model.content import Text
from backstay.model.gateways.delivery import (
    Delivery,
    Ending,
    PartDeferred,
    PartRefused,
    PartResult,
    PartSent,
    PartUncertain,
    Receipt,
)
from backstay.model.gateways.gateway import OpenGateway
from backstay.model.ids import DeliveryId, SessionId
from backstay.model.turn import Completed, Failed
from backstay.store import Store
from backstay.store.commands import gateway_commands
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import LEASE, ContractBase
from tests.contract.builders import AGENT, ME, STRANGER, new_session, room, run, say, start
from tests.contract.gateways.received_messages import BOT, HOME, hello, opened, received, turn_of

UNKNOWN = DeliveryId("dlv_01kb000000e0080000000000zz")


class DeliveryContract(ContractBase):
    """What is due, and how far it was sent."""

    def test_the_answer_to_a_received_message_is_due_at_its_destination(self, store: Store) -> None:
        proof = opened(store)
        turn = turn_of(received(store, proof, hello()))
        assert due(store) == ()
        _answer_all(store)

        proof = _marked(store, proof)

        (delivery,) = due(store)
        assert (delivery.destination, delivery.session, delivery.gateway) == (HOME, turn.session, BOT)
        ending = _ending(store, delivery)
        assert (ending.turn, ending.agent, ending.request_id) == (turn.id, AGENT, f"{BOT}/42/1")
        assert ending.outcome == Completed()
        assert [said.text for said in ending.messages] == ["an answer"]

        settled = store.run(gateway_commands.settle(proof, delivery.id, ending.event))
        assert settled is not None
        assert (settled.cursor, settled.due) == (ending.event, False)
        assert due(store) == ()

    def test_what_happened_before_the_first_message_is_not_sent(self, store: Store) -> None:
        proof, session = opened(store), new_session(store)
        run(store, session, "asked elsewhere", "answered elsewhere")
        received(store, proof, hello(to=session))
        _answer_all(store)

        _marked(store, proof)

        (delivery,) = due(store)
        assert [said.text for said in _ending(store, delivery).messages] == ["an answer"]

    def test_turns_of_other_surfaces_are_due_too(self, store: Store) -> None:
        proof, session = opened(store), new_session(store)
        delivery = store.run(gateway_commands.deliver_to(proof, HOME, session))
        run(store, session, "asked on the page", "one")
        store.record(session, [message.user("recorded"), message.assistant("two")], owner=ME)
        failed = start(store, session, "three")
        store.finish(say(store, failed, Text("half")), Failed("no network"))

        _marked(store, proof)

        assert due(store) == (msgspec.structs.replace(delivery, due=True),)
        found = _all_endings(store, session)
        assert [[said.text for said in ending.messages] for ending in found] == [["one"], ["recorded", "two"], ["half"]]
        assert [type(ending.outcome) for ending in found] == [Completed, Completed, Failed]

    def test_a_folded_turn_is_the_same_ending(self, store: Store) -> None:
        session = new_session(store)
        for number in range(3):
            run(store, session, f"question {number}", [Text("an "), Text("answer")])
        before = _all_endings(store, session)

        store.fold(older_than=-1)

        assert _all_endings(store, session) == before
        assert len(before) == 3

    def test_a_turn_that_is_folded_while_it_is_due_is_sent_once(self, store: Store) -> None:
        proof = opened(store)
        received(store, proof, hello())
        _answer_all(store)
        proof = _marked(store, proof)
        (delivery,) = due(store)
        event = _ending(store, delivery).event

        store.fold(older_than=-1)
        store.run(gateway_commands.settle(proof, delivery.id, event))
        _marked(store, proof)

        assert due(store) == ()

    def test_a_turn_that_ends_while_another_is_sent_stays_due(self, store: Store) -> None:
        proof = opened(store)
        session = turn_of(received(store, proof, hello())).session
        _answer_all(store)
        proof = _marked(store, proof)
        (delivery,) = due(store)
        event = _ending(store, delivery).event
        run(store, session, "meanwhile", "another answer")

        settled = store.run(gateway_commands.settle(proof, delivery.id, event))

        assert settled is not None
        assert settled.due
        assert [said.text for said in _ending(store, settled).messages] == ["another answer"]

    def test_the_feed_is_read_once_whoever_polls(self, store: Store, other: Store, clock: ManualClock) -> None:
        proof = opened(store)
        received(store, proof, hello())
        _answer_all(store)
        marked = _marked(store, proof)
        clock.advance(LEASE + 1)

        following = opened(other)

        assert following.feed == marked.feed > 0
        assert other.run(gateway_commands.ended_turns(following.feed, owner=ME)).sessions == {}
        assert len(due(other)) == 1

    def test_the_feed_of_ended_turns_is_read_in_pages(self, store: Store) -> None:
        sessions = [new_session(store) for _ in range(5)]
        position = store.run(gateway_commands.ended_turns(None, owner=ME)).next
        for session in sessions:
            run(store, session)
        store.record(new_session(store, owner=STRANGER), [message.user("not yours")], owner=STRANGER)
        seen: list[SessionId] = []
        more = True
        while more:
            page = store.run(gateway_commands.ended_turns(position, owner=ME, limit=2))
            seen, position, more = [*seen, *page.sessions], page.next, page.more

        assert seen == sessions

    def test_a_delivery_is_never_ahead_of_its_session(self, store: Store) -> None:
        proof, delivery = _bound(store)

        with pytest.raises(InvalidPayload):
            store.run(gateway_commands.settle(proof, delivery, 99))

    # --- destinations -----------------------------------------------------------------------------------------------

    def test_a_session_may_be_shown_in_several_chats(self, store: Store) -> None:
        proof = opened(store)
        session = turn_of(received(store, proof, hello())).session
        store.run(gateway_commands.deliver_to(proof, "another chat", session))
        store.run(gateway_commands.deliver_to(proof, "another chat", session))
        _answer_all(store)

        _marked(store, proof)

        assert sorted(delivery.destination for delivery in due(store)) == [HOME, "another chat"]
        found = store.run(gateway_commands.deliveries_of(session, owner=ME))
        assert [delivery.id for delivery in found] == [delivery.id for delivery in due(store)]

    def test_a_delivery_ends_once_its_session_is_idle(self, store: Store) -> None:
        proof = opened(store)
        session = turn_of(received(store, proof, hello())).session
        (delivery,) = store.run(gateway_commands.deliveries_of(session, owner=ME))
        store.run(gateway_commands.end_delivery(proof, delivery.id))

        waiting = store.run(gateway_commands.settle(proof, delivery.id, delivery.cursor))
        assert waiting is not None
        assert waiting.closing
        _answer_all(store)
        ending = _ending(store, delivery)
        sent(store, proof, delivery.id, ending.event)

        assert store.run(gateway_commands.settle(proof, delivery.id, ending.event)) is None
        assert store.run(gateway_commands.deliveries_of(session, owner=ME)) == ()
        with pytest.raises(NotFound):
            store.run(gateway_commands.settle(proof, delivery.id, ending.event))

    def test_a_new_message_keeps_a_delivery_that_was_to_end(self, store: Store) -> None:
        proof = opened(store)
        session = turn_of(received(store, proof, hello())).session
        (delivery,) = store.run(gateway_commands.deliveries_of(session, owner=ME))
        store.run(gateway_commands.end_delivery(proof, delivery.id))

        received(store, proof, hello("42/2"))

        assert [found.closing for found in store.run(gateway_commands.deliveries_of(session, owner=ME))] == [False]

    def test_a_chat_can_start_anew_and_still_gets_what_runs(self, store: Store) -> None:
        proof = opened(store)
        old = turn_of(received(store, proof, hello())).session
        anew = gateway_commands.start_anew(proof, room(), HOME)
        command = hello("42/2", parts=())
        store.run(gateway_commands.receive(proof, command, cursor="2", action=anew))
        store.run(gateway_commands.receive(proof, command, cursor="2", action=anew))
        new = turn_of(received(store, proof, hello("42/3"))).session
        _answer_all(store)

        proof = _marked(store, proof)

        assert len(store.list(owner=ME).sessions) == 2
        assert {delivery.session: delivery.closing for delivery in due(store)} == {old: True, new: False}
        for delivery in due(store):
            store.run(gateway_commands.settle(proof, delivery.id, _ending(store, delivery).event))
        assert store.run(gateway_commands.deliveries_of(old, owner=ME)) == ()
        assert len(store.run(gateway_commands.deliveries_of(new, owner=ME))) == 1

    def test_a_deleted_session_is_delivered_nowhere(self, store: Store) -> None:
        proof = opened(store)
        session = turn_of(received(store, proof, hello())).session
        _answer_all(store)
        proof = _marked(store, proof)
        (delivery,) = due(store)
        sent(store, proof, delivery.id, _ending(store, delivery).event)

        store.delete(session, owner=ME)

        assert due(store) == ()
        with pytest.raises(NotFound):
            store.run(gateway_commands.begin_part(proof, delivery.id, 9, 0, low=0, high=1))

    def test_a_stopped_delivery_is_not_due_until_its_destination_writes(self, store: Store) -> None:
        proof = opened(store)
        session = turn_of(received(store, proof, hello())).session
        _answer_all(store)
        proof = _marked(store, proof)
        (delivery,) = due(store)
        stopped = store.run(gateway_commands.stop_delivery(proof, delivery.id, "blocked"))
        assert stopped is not None
        assert (stopped.stopped, stopped.due) == ("blocked", False)
        run(store, session, "on the page", "an answer")
        proof = _marked(store, proof)
        assert due(store) == ()

        received(store, proof, hello("42/2"))
        _answer_all(store)
        _marked(store, proof)

        (again,) = due(store)
        assert again.stopped is None
        assert again.cursor < _ending(store, again).event
        assert _ending(store, again).request_id == f"{BOT}/42/2"

    def test_a_stopped_delivery_that_was_to_end_has_ended(self, store: Store) -> None:
        proof, delivery = _bound(store)
        session = store.run(gateway_commands.end_delivery(proof, delivery)).session

        assert store.run(gateway_commands.stop_delivery(proof, delivery, "blocked")) is None
        assert store.run(gateway_commands.deliveries_of(session, owner=ME)) == ()

    def test_a_destination_that_moved_keeps_its_cursor_and_its_receipts(self, store: Store) -> None:
        proof = opened(store)
        session = turn_of(received(store, proof, hello())).session
        other = new_session(store)
        kept = store.run(gateway_commands.deliver_to(proof, "elsewhere", other))
        store.run(gateway_commands.deliver_to(proof, HOME, other))
        (delivery,) = store.run(gateway_commands.deliveries_of(session, owner=ME))
        begun = sent(store, proof, delivery.id, 1)

        moved = store.run(gateway_commands.move_destination(proof, HOME, "elsewhere"))
        again = store.run(gateway_commands.move_destination(proof, HOME, "elsewhere"))

        assert set(moved) == {session, other}
        assert again == ()
        found = store.run(gateway_commands.deliveries_of(session, owner=ME))
        assert found == (msgspec.structs.replace(delivery, destination="elsewhere"),)
        assert store.run(gateway_commands.receipts(delivery.id, 1, gateway=BOT, owner=ME)) == (begun,)
        assert [one.id for one in store.run(gateway_commands.deliveries_of(other, owner=ME))] == [kept.id]

    def test_sessions_of_a_chat_with_another_id_are_found_under_both(self, store: Store) -> None:
        proof = opened(store)
        session = turn_of(received(store, proof, hello())).session
        here = room()
        assert isinstance(here, ChatAddress)
        new = msgspec.structs.replace(here, chat="moved")

        store.run(gateway_commands.move_destination(proof, HOME, "elsewhere", chats=(here.chat, "moved")))
        store.run(gateway_commands.move_destination(proof, "elsewhere", "back", chats=(here.chat, "moved")))

        assert {store.at(here, owner=ME).id, store.at(new, owner=ME).id} == {session}

    def test_sessions_whose_turns_start_are_in_the_feed(self, store: Store) -> None:
        proof = opened(store)
        session = turn_of(received(store, proof, hello())).session
        position = store.run(gateway_commands.ended_turns(None, owner=ME)).next
        assert store.run(gateway_commands.running_deliveries(BOT, owner=ME)) == ()
        claimed = store.claim([AGENT])
        assert claimed is not None

        found = store.run(gateway_commands.ended_turns(position, owner=ME))

        assert found.started == {session}
        assert found.sessions == {}
        assert [one.session for one in store.run(gateway_commands.running_deliveries(BOT, owner=ME))] == [session]
        store.finish(claimed, Completed())
        assert store.run(gateway_commands.ended_turns(found.next, owner=ME)).started == set()
        assert store.run(gateway_commands.running_deliveries(BOT, owner=ME)) == ()

    def test_the_message_of_a_preview_is_known_to_the_next_poller(
        self, store: Store, other: Store, clock: ManualClock
    ) -> None:
        proof, delivery = _bound(store)
        store.run(gateway_commands.note_preview(proof, delivery, "m7"))
        clock.advance(LEASE + 1)

        following = opened(other)

        (found,) = other.run(gateway_commands.deliveries_with_preview(BOT, owner=ME))
        assert (found.id, found.preview) == (delivery, "m7")
        other.run(gateway_commands.forget_preview(following, delivery, "m6"))
        assert len(other.run(gateway_commands.deliveries_with_preview(BOT, owner=ME))) == 1
        other.run(gateway_commands.forget_preview(following, delivery, "m7"))
        assert other.run(gateway_commands.deliveries_with_preview(BOT, owner=ME)) == ()
        with pytest.raises(LeaseLost):
            store.run(gateway_commands.note_preview(proof, delivery, "m8"))

    def test_another_owner_finds_no_delivery(self, store: Store) -> None:
        proof = opened(store)
        session = turn_of(received(store, proof, hello())).session
        (delivery,) = store.run(gateway_commands.deliveries_of(session, owner=ME))
        theirs = store.run(gateway_commands.open_gateway(BOT, owner=STRANGER))
        assert theirs is not None

        for command in (
            gateway_commands.deliveries_of(session, owner=STRANGER),
            gateway_commands.next_ending(session, 0, owner=STRANGER),
            gateway_commands.receipts(delivery.id, 1, gateway=BOT, owner=STRANGER),
            gateway_commands.deliver_to(theirs, HOME, session),
            gateway_commands.end_delivery(theirs, delivery.id),
            gateway_commands.settle(theirs, delivery.id, 1),
            gateway_commands.begin_part(theirs, delivery.id, 1, 0, low=0, high=1),
            gateway_commands.stop_delivery(theirs, delivery.id, "blocked"),
            gateway_commands.note_preview(theirs, delivery.id, "m1"),
            gateway_commands.forget_preview(theirs, delivery.id, "m1"),
        ):
            with pytest.raises(NotFound):
                store.run(command)
        assert store.run(gateway_commands.due_deliveries(BOT, owner=STRANGER)) == ()
        assert store.run(gateway_commands.running_deliveries(BOT, owner=STRANGER)) == ()
        assert store.run(gateway_commands.move_destination(theirs, HOME, "elsewhere")) == ()

    # --- receipts ---------------------------------------------------------------------------------------------------

    def test_a_part_is_begun_before_it_is_sent_and_never_sent_again(self, store: Store) -> None:
        proof, delivery = _bound(store)

        begun = store.run(gateway_commands.begin_part(proof, delivery, 5, 0, low=0, high=10))
        done = store.run(gateway_commands.finish_part(proof, delivery, 5, 0, PartSent("m1")))
        again = store.run(gateway_commands.begin_part(proof, delivery, 5, 0, low=3, high=7))

        assert (begun.state, begun.attempts, begun.platform_id) == ("sending", 1, None)
        assert (done.state, done.platform_id) == ("sent", "m1")
        assert again == done
        assert store.run(gateway_commands.receipts(delivery, 5, gateway=BOT, owner=ME)) == (done,)

    def test_a_deferred_part_is_sent_later_with_the_same_characters(self, store: Store) -> None:
        proof, delivery = _bound(store)
        _attempted(store, proof, delivery, PartDeferred("retry after 3 s"))

        again = store.run(gateway_commands.begin_part(proof, delivery, 5, 0, low=0, high=99))

        assert (again.state, again.attempts, again.repeated, again.high) == ("sending", 2, False, 10)

    def test_a_deferred_part_fails_when_it_is_too_old(self, store: Store, clock: ManualClock) -> None:
        proof, delivery = _bound(store)
        assert _attempted(store, proof, delivery, PartDeferred("no network")).state == "waiting"
        clock.advance(11)
        proof = store.run(gateway_commands.renew_gateway(proof))

        late = _attempted(store, proof, delivery, PartDeferred("no network"), max_age=10)

        assert (late.state, late.reason) == ("failed", "too late: no network")
        assert store.run(gateway_commands.begin_part(proof, delivery, 5, 0, low=0, high=10)) == late

    def test_a_refused_part_is_never_sent_again(self, store: Store) -> None:
        proof, delivery = _bound(store)

        refused = _attempted(store, proof, delivery, PartRefused("the bot was blocked"))

        assert (refused.state, refused.reason) == ("failed", "the bot was blocked")
        assert store.run(gateway_commands.begin_part(proof, delivery, 5, 0, low=0, high=10)) == refused

    def test_a_part_in_doubt_is_marked_when_it_is_sent_again(self, store: Store) -> None:
        proof, delivery = _bound(store)
        assert _attempted(store, proof, delivery, PartUncertain("timed out")).state == "unknown"

        again = _attempted(store, proof, delivery, PartDeferred("retry after 3 s"))
        last = _attempted(store, proof, delivery, PartSent("m2"))

        assert (again.repeated, last.repeated, last.attempts) == (True, True, 3)

    def test_a_part_that_a_dead_poller_was_sending_is_in_doubt(
        self, store: Store, other: Store, clock: ManualClock
    ) -> None:
        proof, delivery = _bound(store)
        sent(store, proof, delivery, 5)
        store.run(gateway_commands.begin_part(proof, delivery, 5, 1, low=10, high=20))
        clock.advance(LEASE + 1)

        following = opened(other)

        states = [found.state for found in other.run(gateway_commands.receipts(delivery, 5, gateway=BOT, owner=ME))]
        assert states == ["sent", "unknown"]
        with pytest.raises(LeaseLost):
            store.run(gateway_commands.finish_part(proof, delivery, 5, 1, PartSent("m2")))
        again = other.run(gateway_commands.begin_part(following, delivery, 5, 1, low=10, high=20))
        assert (again.state, again.repeated) == ("sending", True)

    def test_a_part_is_not_sent_by_two_tasks_at_once(self, store: Store) -> None:
        proof, delivery = _bound(store)
        store.run(gateway_commands.begin_part(proof, delivery, 5, 0, low=0, high=10))

        with pytest.raises(Conflict):
            store.run(gateway_commands.begin_part(proof, delivery, 5, 0, low=0, high=10))
        sent(store, proof, delivery, 6)
        with pytest.raises(Conflict):
            store.run(gateway_commands.finish_part(proof, delivery, 6, 0, PartSent("m2")))
        with pytest.raises(Conflict):
            store.run(gateway_commands.finish_part(proof, delivery, 7, 0, PartSent("m2")))

    @pytest.mark.parametrize(("low", "high"), [(0, 0), (5, 4), (-1, 3)])
    def test_a_part_has_characters(self, store: Store, low: int, high: int) -> None:
        proof, delivery = _bound(store)

        with pytest.raises(InvalidPayload):
            store.run(gateway_commands.begin_part(proof, delivery, 5, 0, low=low, high=high))
        with pytest.raises(NotFound):
            store.run(gateway_commands.begin_part(proof, UNKNOWN, 5, 0, low=0, high=1))


def due(store: Store) -> tuple[Delivery, ...]:
    """The deliveries that have something to send."""
    return store.run(gateway_commands.due_deliveries(BOT, owner=ME))


def sent(store: Store, proof: OpenGateway, delivery: DeliveryId, event: int) -> Receipt:
    """Send the first part of an event."""
    store.run(gateway_commands.begin_part(proof, delivery, event, 0, low=0, high=10))
    return store.run(gateway_commands.finish_part(proof, delivery, event, 0, PartSent("m1")))


def _attempted(
    store: Store, proof: OpenGateway, delivery: DeliveryId, result: PartResult, *, max_age: float = 86_400
) -> Receipt:
    store.run(gateway_commands.begin_part(proof, delivery, 5, 0, low=0, high=10))
    return store.run(gateway_commands.finish_part(proof, delivery, 5, 0, result, max_age_seconds=max_age))


def _bound(store: Store) -> tuple[OpenGateway, DeliveryId]:
    proof = opened(store)
    return proof, store.run(gateway_commands.deliver_to(proof, HOME, new_session(store))).id


def _marked(store: Store, proof: OpenGateway) -> OpenGateway:
    return store.run(
        gateway_commands.mark_due(proof, store.run(gateway_commands.ended_turns(proof.feed, owner=proof.owner)))
    )


def _answer_all(store: Store) -> None:
    while (claimed := store.claim([AGENT])) is not None:
        store.finish(claimed, Completed(), bodies=[Text("an answer")])


def _ending(store: Store, delivery: Delivery) -> Ending:
    found = store.run(gateway_commands.next_ending(delivery.session, delivery.cursor, owner=ME))
    assert found is not None
    return found


def _all_endings(store: Store, session: SessionId) -> list[Ending]:
    found: list[Ending] = []
    number = 0
    while (ending := store.run(gateway_commands.next_ending(session, number, owner=ME))) is not None:
        found, number = [*found, ending], ending.event
    return found
