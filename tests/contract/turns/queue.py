"""The queue: waiting inputs, the workers that may start them, and repeated requests."""

from collections.abc import Callable, Collection, Iterator

import pytest

from backstay.errors import (
    Conflict,
    InvalidPayload,
    NotFound,
    NothingToDo,
    RequestMismatch,
    RevisionMismatch,
    SessionBusy,
)
from backstay.model import event, message
from backstay.model.addresses.address import Address
from backstay.model.content import Text, ToolResult
from backstay.model.ids import SessionId
from backstay.model.limits import Limits
from backstay.model.session import Ttl
from backstay.model.turn import Accepted, Cancelled, Completed, Failed, IfBusy, Inbox, Interrupted, Recorded
from backstay.store import Store, commands
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import ContractBase, OpenAnother
from tests.contract.builders import (
    AGENT,
    ME,
    STRANGER,
    bodies_of,
    enqueue,
    look,
    new_session,
    refused,
    room,
    run,
    said_in,
    start,
    talk,
    texts,
)

HOUR = 3600.0


def _claim_and_die(store: Store) -> None:
    store.claim([AGENT])
    store.close()


class _Leaving(Collection[str]):
    """The agents of a worker that stops serving them between its search and its decision."""

    def __iter__(self) -> Iterator[str]:
        return iter([AGENT])

    def __len__(self) -> int:
        return 1

    def __contains__(self, name: object) -> bool:
        return False


# Events that may occur between a request and its repetition.
MEANWHILE: dict[str, Callable[[Store, Accepted], object]] = {
    "nothing": lambda *_: None,
    "it was claimed": lambda store, _: store.claim([AGENT]),
    "it was claimed by a holder that is gone": lambda store, _: _claim_and_die(store),
    "it was withdrawn": lambda store, first: store.withdraw(first.turn.id, owner=ME),
    "it was edited": lambda store, first: store.edit_waiting(first.turn.id, "else", owner=ME),
    "the session ended": lambda store, first: store.end(first.session.id, owner=ME),
    "the address was pointed elsewhere": lambda store, _: store.point(room(), new_session(store), owner=ME),
    "the session was forked": lambda store, first: store.fork(first.session.id, owner=ME),
}


class QueueContract(ContractBase):
    """Facts about turns that wait."""

    # --- waiting ----------------------------------------------------------------------------------------------------

    def test_an_accepted_input_waits_until_a_worker_serves_its_agent(self, store: Store, other: Store) -> None:
        accepted = store.submit(room(), "hello", owner=ME, agent="cook")

        turn = other.turn(accepted.turn.id, owner=ME)
        assert (turn.state, turn.agent, turn.input, turn.started_at) == ("waiting", "cook", (Text("hello"),), None)
        assert accepted.opened is None
        assert other.waiting(accepted.session.id, owner=ME) == (turn,) == (accepted.turn,)
        assert other.session(accepted.session.id, owner=ME) == accepted.session
        assert (accepted.session.waiting, accepted.session.running) == (1, None)

    def test_a_waiting_input_is_not_yet_a_message(self, store: Store) -> None:
        before = store.create(owner=ME)

        accepted = store.submit(before.id, "hello", owner=ME)

        assert texts(store, before.id) == []
        assert (accepted.session.context, accepted.session.revision) == (before.context, before.revision + 1)
        assert bodies_of(store, before.id)[-1] == event.TurnSubmitted(AGENT, (Text("hello"),))

    def test_submitting_to_a_new_address_makes_its_session(self, store: Store) -> None:
        accepted = store.submit(room(), "hello", owner=ME, start=True)

        assert store.resolve(room(), owner=ME).session.id == accepted.session.id
        assert (accepted.session.family, accepted.session.place) == (room().family, room().place)

    def test_submitting_to_an_address_whose_session_ended_makes_the_next(self, store: Store) -> None:
        first = store.resolve(room(), owner=ME).session.id
        store.end(first, owner=ME)

        accepted = store.submit(room(), "hello", owner=ME)

        assert accepted.session.id != first
        found = store.resolve(room(), owner=ME)
        assert (found.session.id, found.generation) == (accepted.session.id, 2)

    def test_turns_wait_in_the_order_they_were_accepted(self, store: Store, other: Store) -> None:
        session = new_session(store)

        turns = [handle.submit(session, str(n), owner=ME).turn for n, handle in enumerate([store, other] * 3)]

        assert store.waiting(session, owner=ME) == tuple(turns)
        assert store.session(session, owner=ME).waiting == 6

    def test_a_turn_waits_while_another_runs_even_if_its_agent_is_served(self, store: Store, other: Store) -> None:
        proof = start(store, room())

        accepted = other.submit(room(), "me too", owner=ME, start=True)

        assert accepted.opened is None
        assert accepted.turn.state == "waiting"
        assert accepted.session.running == proof.id

    def test_a_worker_that_can_start_gets_the_longest_waiting_turn(self, store: Store) -> None:
        session = new_session(store)
        first = enqueue(store, session, "first")

        accepted = store.submit(session, "second", owner=ME, start=True)

        assert accepted.opened is not None
        assert accepted.opened.id == first.id
        assert (accepted.turn.state, accepted.session.waiting) == ("waiting", 1)
        assert store.waiting(session, owner=ME) == (accepted.turn,)

    def test_a_worker_does_not_get_an_agent_it_does_not_serve(self, store: Store) -> None:
        session = new_session(store)
        enqueue(store, session, agent="cook")

        accepted = store.submit(session, "second", owner=ME, start=True)

        assert accepted.opened is None
        assert accepted.session.waiting == 2

    def test_no_more_turns_wait_than_the_limit_allows(self, open_another: OpenAnother) -> None:
        store = open_another(limits=Limits(waiting_turns=2))
        session = new_session(store)
        first = enqueue(store, session)
        enqueue(store, session)

        with refused(store, session, SessionBusy):
            store.submit(session, "one too many", owner=ME)
        with refused(store, session, SessionBusy):
            store.record(session, [message.user("one too many")], owner=ME)

        store.withdraw(first.id, owner=ME)
        enqueue(store, session)

    # --- if a turn runs ---------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("mode", ["enqueue", "reject", "steer", "replace", "fork"])
    def test_in_an_idle_session_every_if_busy_mode_starts(self, store: Store, mode: IfBusy) -> None:
        session = new_session(store)

        accepted = store.submit(session, "hello", owner=ME, if_busy=mode, start=True)

        assert accepted.opened is not None
        assert (accepted.session.id, accepted.forked_from, accepted.turn.steer) == (session, None, False)
        assert accepted.opened.id == accepted.turn.id == store.session(session, owner=ME).running

    def test_reject_raises_while_a_turn_runs(self, store: Store, other: Store) -> None:
        proof = start(store, room())

        with refused(store, proof.session, SessionBusy, proof.id):
            other.submit(room(), "me too", owner=ME, if_busy="reject")
        with refused(store, proof.session, SessionBusy, proof.id):
            other.submit(proof.session, "me too", owner=ME, if_busy="reject", start=True)

    def test_replace_asks_the_running_turn_to_stop_and_runs_next(self, store: Store, other: Store) -> None:
        proof = start(store, room(), "one")
        later = enqueue(store, proof.session, "later")

        accepted = other.submit(room(), "no, two", owner=ME, if_busy="replace")

        assert store.renew(proof).inbox == Inbox(cancel=True, steering=0, waiting=2)
        assert store.turn(proof.id, owner=ME).cancel_requested
        assert [turn.id for turn in store.waiting(proof.session, owner=ME)] == [accepted.turn.id, later.id]
        following = store.finish(proof, Cancelled(), agents=[AGENT]).opened
        assert following is not None
        assert following.id == accepted.turn.id

    def test_replace_writes_a_cancel_request_and_then_the_new_turn(self, store: Store) -> None:
        proof = start(store, room(), "one")

        store.submit(room(), "two", owner=ME, if_busy="replace")

        assert bodies_of(store, proof.session)[2:] == [
            event.CancelRequested(),
            event.TurnSubmitted(AGENT, (Text("two"),)),
        ]

    def test_if_busy_fork_starts_from_the_messages_before_the_running_turn(self, store: Store, other: Store) -> None:
        session = store.resolve(room(), owner=ME).session.id
        talk(store, session)
        proof = start(store, room(), "busy")
        before = look(store, session, [proof.id])

        accepted = other.submit(room(), "aside", owner=ME, if_busy="fork", start=True)

        assert accepted.forked_from == session != accepted.session.id
        assert accepted.opened is not None
        assert accepted.session.source == session
        assert texts(store, accepted.session.id) == ["question 1", "answer 1", "aside"]
        after = look(store, session, [proof.id])
        assert (after.session, after.events, after.messages) == (before.session, before.events, before.messages)
        assert store.resolve(room(), owner=ME).session.id == session

    def test_fork_without_a_worker_waits_elsewhere(self, store: Store) -> None:
        proof = start(store, room())

        accepted = store.submit(room(), "aside", owner=ME, if_busy="fork")

        assert (accepted.turn.state, accepted.forked_from) == ("waiting", proof.session)
        assert store.waiting(proof.session, owner=ME) == ()
        assert store.waiting(accepted.session.id, owner=ME) == (accepted.turn,)

    # --- claiming ---------------------------------------------------------------------------------------------------

    def test_claiming_starts_a_waiting_turn(self, store: Store, other: Store, clock: ManualClock) -> None:
        session = new_session(store)
        waiting = enqueue(store, session, "hello")
        clock.advance(1)

        proof = other.claim([AGENT])

        assert proof is not None
        assert (proof.id, proof.session, proof.owner, proof.holder) == (waiting.id, session, ME, other.worker)
        turn = store.turn(waiting.id, owner=ME)
        assert (turn.state, turn.started_at, turn.input) == ("running", clock.now(), None)
        assert said_in(store, session) == (proof.input,)
        assert bodies_of(store, session)[-1] == event.TurnStarted(AGENT, proof.input)
        now = store.session(session, owner=ME)
        assert (now.running, now.holder, now.waiting) == (waiting.id, other.worker, 0)

    def test_without_waiting_turns_there_is_nothing_to_claim(self, store: Store) -> None:
        session = new_session(store)
        run(store, session)

        assert store.claim([AGENT]) is None
        assert store.claim([AGENT], session=session, owner=ME) is None

    def test_only_a_worker_that_serves_the_agent_can_claim(self, store: Store) -> None:
        session = new_session(store)
        waiting = enqueue(store, session, agent="cook")
        before = look(store, session, [waiting.id])

        assert store.claim([]) is None
        assert store.claim([AGENT, "gardener"]) is None
        assert store.claim([AGENT], session=session, owner=ME) is None
        assert look(store, session, [waiting.id]) == before
        assert store.claim(["gardener", "cook"]) is not None

    @pytest.mark.parametrize("verb", ["claim", "claim in a session", "finish", "submit", "retry", "edit"])
    def test_a_turn_starts_by_the_agents_served_at_the_moment_of_the_decision(self, store: Store, verb: str) -> None:
        session = new_session(store)
        asked = run(store, session)
        first = said_in(store, session)[0].id
        leaving = _Leaving()
        if verb == "finish":
            proof = start(store, session)
            enqueue(store, session)
            assert store.finish(proof, Completed(), agents=leaving).opened is None
        elif verb == "submit":
            assert store.submit(session, "hello", owner=ME, start=leaving).opened is None
        elif verb == "retry":
            assert store.retry(session, owner=ME, start=leaving).opened is None
        elif verb == "edit":
            assert store.edit(session, first, "hello", owner=ME, start=leaving).opened is None
        else:
            enqueue(store, session)
            here = session if verb == "claim in a session" else None
            assert store.claim(leaving, session=here, owner=ME) is None

        now = store.session(session, owner=ME)
        assert (now.running, now.waiting, now.revision > asked.revision) == (None, 1, True)

    def test_a_turn_is_resumed_only_by_a_worker_that_serves_its_agent(self, store: Store) -> None:
        session = new_session(store)
        cut = run(store, session, outcome=Interrupted("stopped")).turn

        for served in ([], ["cook"], _Leaving()):
            with refused(store, session, Conflict, cut.id):
                store.resume(cut.id, owner=ME, agents=served)
        assert store.resume(cut.id, owner=ME, agents=["cook", AGENT]).agent == AGENT

    def test_invalid_agent_names_start_nothing(self, store: Store) -> None:
        session = new_session(store)

        with refused(store, session, InvalidPayload):
            store.submit(session, "hello", owner=ME, start=AGENT)

    def test_the_oldest_waiting_turn_of_all_sessions_is_claimed_first(self, store: Store, clock: ManualClock) -> None:
        expected = []
        for owner, agent in ((ME, AGENT), (STRANGER, "cook"), (ME, "cook"), (STRANGER, AGENT)):
            clock.advance(1)
            expected.append(store.submit(new_session(store, owner=owner), "hello", owner=owner, agent=agent).turn.id)

        claimed = [store.claim(["cook", AGENT]) for _ in range(5)]

        assert [proof.id for proof in claimed if proof] == expected
        assert claimed[-1] is None

    def test_the_first_turn_of_a_queue_is_claimed_first_for_any_agent(self, store: Store) -> None:
        session = new_session(store)
        first, second = enqueue(store, session, agent="cook"), enqueue(store, session, agent=AGENT)

        assert store.claim([AGENT]) is None
        proof = store.claim([AGENT, "cook"])

        assert proof is not None
        assert proof.id == first.id
        following = store.finish(proof, Completed(), agents=[AGENT]).opened
        assert following is not None
        assert following.id == second.id

    def test_a_waiting_turn_is_awaited_also_while_it_cannot_start(self, store: Store) -> None:
        session = new_session(store)
        proof = start(store, session)
        assert not store.run(commands.awaited([AGENT, "cook"]))
        waiting = enqueue(store, session)

        assert store.run(commands.awaited(["cook", AGENT]))
        assert not store.run(commands.awaited(["cook"]))
        assert not store.run(commands.awaited([]))
        assert not store.has_work([AGENT])
        store.withdraw(waiting.id, owner=ME)
        assert not store.run(commands.awaited([AGENT]))
        store.finish(proof, Completed())

    def test_a_queue_that_cannot_move_does_not_hold_up_another(self, store: Store, clock: ManualClock) -> None:
        stuck = new_session(store)
        enqueue(store, stuck, agent="cook")
        enqueue(store, stuck)
        assert not store.has_work([AGENT])
        clock.advance(1)
        waiting = enqueue(store, new_session(store))

        proof = store.claim([AGENT])

        assert proof is not None
        assert proof.id == waiting.id

    def test_two_turns_of_a_session_never_run_at_once(self, store: Store, other: Store) -> None:
        session = new_session(store)
        enqueue(store, session)
        second = enqueue(store, session)
        proof = store.claim([AGENT])
        assert proof is not None

        assert other.claim([AGENT]) is None
        assert other.claim([AGENT], session=session, owner=ME) is None
        assert other.submit(session, "third", owner=ME, start=True).opened is None
        assert store.turn(second.id, owner=ME).state == "waiting"

    def test_every_waiting_turn_is_claimed_by_one_worker(self, store: Store, other: Store) -> None:
        waiting = {enqueue(store, new_session(store)).id for _ in range(6)}

        claimed = [proof for handle in [store, other] * 4 if (proof := handle.claim([AGENT]))]

        assert len(claimed) == 6
        assert {proof.id for proof in claimed} == waiting
        assert {proof.holder for proof in claimed} == {store.worker, other.worker}

    def test_the_next_turn_of_one_session_can_be_claimed(self, store: Store, clock: ManualClock) -> None:
        enqueue(store, new_session(store))
        clock.advance(1)
        session = new_session(store)
        waiting = enqueue(store, session)

        proof = store.claim([AGENT], session=session, owner=ME)

        assert proof is not None
        assert proof.id == waiting.id

    def test_the_turns_of_one_owner_can_be_claimed(self, store: Store, clock: ManualClock) -> None:
        store.submit(new_session(store, owner=STRANGER), "hello", owner=STRANGER)
        clock.advance(1)
        mine = enqueue(store, new_session(store))

        claimed = [store.claim([AGENT], owner=ME) for _ in range(2)]

        assert [proof and proof.id for proof in claimed] == [mine.id, None]

    def test_there_is_work_exactly_when_there_is_something_to_claim(self, store: Store, other: Store) -> None:
        session = new_session(store)
        assert not other.has_work([AGENT])

        enqueue(store, session)
        assert other.has_work([AGENT])
        assert other.has_work(["cook", AGENT])
        assert not other.has_work(["cook"])
        assert not other.has_work([])

        store.claim([AGENT])
        enqueue(store, session)
        assert not other.has_work([AGENT])

    def test_turns_behind_a_dead_holder_count_as_work(self, open_another: OpenAnother, store: Store) -> None:
        holder = open_another()
        gone = start(holder, room())
        enqueue(holder, gone.session)
        holder.close()

        assert store.has_work([AGENT])
        assert store.claim([AGENT]) is not None

    def test_asking_for_work_writes_nothing(self, store: Store) -> None:
        session = new_session(store)
        waiting = enqueue(store, session)
        before = look(store, session, [waiting.id])

        store.has_work([AGENT])

        assert look(store, session, [waiting.id]) == before

    # --- editing, withdrawing, reordering ---------------------------------------------------------------------------

    def test_an_edited_turn_keeps_its_place_and_runs_with_its_new_input(self, store: Store) -> None:
        session = new_session(store)
        first, second = enqueue(store, session, "frist"), enqueue(store, session, "second")
        before = store.session(session, owner=ME)

        edited = store.edit_waiting(first.id, [Text("first")], owner=ME)

        assert (edited.id, edited.state, edited.input) == (first.id, "waiting", (Text("first"),))
        assert store.waiting(session, owner=ME) == (edited, second)
        assert store.session(session, owner=ME).revision == before.revision + 1
        assert bodies_of(store, session)[-1] == event.TurnEdited((Text("first"),))
        store.claim([AGENT])
        assert texts(store, session) == ["first"]

    def test_a_withdrawn_turn_never_runs(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        first, second = enqueue(store, session, "frist"), enqueue(store, session, "second")
        before = store.session(session, owner=ME)

        withdrawn = store.withdraw(first.id, owner=ME)

        assert (withdrawn.state, withdrawn.input, withdrawn.ended_at) == ("ended", None, clock.now())
        assert isinstance(withdrawn.outcome, Cancelled)
        assert store.waiting(session, owner=ME) == (second,)
        assert store.session(session, owner=ME).revision == before.revision + 1
        assert isinstance(bodies_of(store, session)[-1], event.TurnEnded)
        store.claim([AGENT])
        assert texts(store, session) == ["second"]

    def test_turns_that_wait_run_in_the_order_they_are_given(self, store: Store, other: Store) -> None:
        session = new_session(store)
        first, second, third = (enqueue(store, session, word) for word in ("first", "second", "third"))
        before = store.session(session, owner=ME)

        waiting = other.reorder(session, [third.id, first.id, second.id], owner=ME)

        assert [turn.id for turn in waiting] == [third.id, first.id, second.id]
        assert store.waiting(session, owner=ME) == waiting
        assert store.session(session, owner=ME).revision == before.revision + 1
        assert bodies_of(store, session)[-1] == event.TurnsReordered((third.id, first.id, second.id))
        store.claim([AGENT])
        assert texts(store, session) == ["third"]

    def test_putting_turns_in_the_order_they_have_writes_nothing(self, store: Store) -> None:
        session = new_session(store)
        order = [enqueue(store, session).id, enqueue(store, session).id]
        before = look(store, session, order)

        store.reorder(session, order, owner=ME)

        assert look(store, session, order) == before

    def test_an_order_that_does_not_name_each_waiting_turn_once_is_refused(self, store: Store) -> None:
        session = new_session(store)
        first, second = enqueue(store, session), enqueue(store, session)

        for order in ([first.id], [first.id, first.id], [second.id, first.id, second.id], []):
            with refused(store, session, Conflict, first.id, second.id):
                store.reorder(session, order, owner=ME)

    def test_reordering_a_changed_session_is_rejected(self, store: Store) -> None:
        session = new_session(store)
        first, second = enqueue(store, session), enqueue(store, session)
        seen = store.session(session, owner=ME).revision
        store.rename(session, "Theirs", owner=ME)

        with refused(store, session, RevisionMismatch, first.id, second.id):
            store.reorder(session, [second.id, first.id], owner=ME, expect_revision=seen)

    def test_recorded_messages_that_move_to_the_front_are_added_at_once(self, store: Store) -> None:
        proof = start(store, room())
        waiting = enqueue(store, proof.session, "asked")
        recorded = store.record(proof.session, [message.user("noted")], owner=ME).turn
        store.finish(proof, Completed())

        store.reorder(proof.session, [recorded.id, waiting.id], owner=ME)

        assert texts(store, proof.session)[-1] == "noted"
        assert [turn.id for turn in store.waiting(proof.session, owner=ME)] == [waiting.id]

    def test_a_running_turn_is_neither_edited_nor_withdrawn(self, store: Store) -> None:
        proof = start(store, room())

        with refused(store, proof.session, SessionBusy, proof.id):
            store.edit_waiting(proof.id, "else", owner=ME)
        with refused(store, proof.session, SessionBusy, proof.id):
            store.withdraw(proof.id, owner=ME)

    def test_an_ended_turn_is_neither_edited_nor_withdrawn(self, store: Store) -> None:
        turn = run(store, room()).turn

        with refused(store, turn.session, NothingToDo, turn.id):
            store.edit_waiting(turn.id, "else", owner=ME)
        with refused(store, turn.session, NothingToDo, turn.id):
            store.withdraw(turn.id, owner=ME)

    def test_a_turn_that_waits_can_be_edited_while_another_runs(self, store: Store, other: Store) -> None:
        proof = start(store, room())
        waiting = enqueue(store, proof.session, "later")

        other.edit_waiting(waiting.id, "sooner", owner=ME)

        following = store.finish(proof, Completed(), agents=[AGENT]).opened
        assert following is not None
        assert following.input.text == "sooner"

    def test_a_steering_input_can_be_edited_and_withdrawn_until_it_is_taken(self, store: Store) -> None:
        proof = start(store, room())
        first, second = (
            store.submit(proof.session, text, owner=ME, if_busy="steer").turn.id for text in ("slower", "louder")
        )

        store.edit_waiting(first, "faster", owner=ME)
        store.withdraw(second, owner=ME)

        taken = store.checkpoint(proof, [], take_steering=True)
        assert [(each.turn, each.parts) for each in taken.steering] == [(first, (Text("faster"),))]
        assert taken.inbox == Inbox(cancel=False, steering=0, waiting=0)

    def test_an_edited_input_cannot_be_a_tool_result(self, store: Store) -> None:
        session = new_session(store)
        waiting = enqueue(store, session)

        with refused(store, session, InvalidPayload, waiting.id):
            store.edit_waiting(waiting.id, ToolResult("c1", "found"), owner=ME)

    def test_finished_messages_that_wait_are_withdrawn_but_not_edited(self, store: Store) -> None:
        proof = start(store, room())
        waiting = store.record(proof.session, [message.user("later")], owner=ME).turn

        with refused(store, proof.session, Conflict, waiting.id):
            store.edit_waiting(waiting.id, "else", owner=ME)

        assert store.withdraw(waiting.id, owner=ME).state == "ended"
        store.finish(proof, Completed())
        assert texts(store, proof.session) == ["hello"]

    @pytest.mark.parametrize("verb", ["withdraw", "cancel"])
    def test_withdrawing_a_turn_moves_up_the_turns_behind_it(self, store: Store, verb: str) -> None:
        session = new_session(store)
        first = enqueue(store, session, "first")
        kept = store.record(session, [message.user("noted")], owner=ME).turn
        last = enqueue(store, session, "last", agent="cook")

        store.withdraw(first.id, owner=ME) if verb == "withdraw" else store.cancel(first.id, owner=ME)

        assert store.turn(kept.id, owner=ME).outcome == Completed()
        assert texts(store, session) == ["noted"]
        proof = store.claim(["cook"])
        assert proof is not None
        assert proof.id == last.id

    # --- requests that are sent twice -------------------------------------------------------------------------------

    @pytest.mark.parametrize("meanwhile", MEANWHILE.values(), ids=MEANWHILE.keys())
    def test_a_repeated_request_is_the_first_turn(
        self, open_another: OpenAnother, store: Store, meanwhile: Callable[[Store, Accepted], object]
    ) -> None:
        first = store.submit(room(), "hello", owner=ME, request_id="r1")
        meanwhile(open_another(), first)
        before = look(store, first.session.id, [first.turn.id])

        again = store.submit(room(), "hello", owner=ME, request_id="r1", start=True)

        assert (again.repeated, again.opened, again.turn.id) == (True, None, first.turn.id)
        assert (again.turn, again.session) == (before.turns[0], before.session)
        assert look(store, first.session.id, [first.turn.id]) == before

    def test_a_request_is_recognised_by_every_handle(self, store: Store, other: Store) -> None:
        first = store.submit(room(), "hello", owner=ME, request_id="r1")

        again = other.submit(room(), "hello", owner=ME, request_id="r1")

        assert (again.repeated, again.turn) == (True, first.turn)

    def test_a_repeated_request_is_the_first_turn_even_after_expiry(
        self, store: Store, other: Store, clock: ManualClock
    ) -> None:
        first = store.submit(room(), "hello", owner=ME, request_id="r1", ttl=Ttl(idle=HOUR), start=True)
        assert first.opened is not None
        store.finish(first.opened, Completed())
        clock.advance(HOUR)

        lapsed = other.submit(room(), "hello", owner=ME, request_id="r1")
        store.resolve(room(), owner=ME)
        replaced = other.submit(room(), "hello", owner=ME, request_id="r1")

        assert (lapsed.repeated, lapsed.turn.id, lapsed.session.state) == (True, first.turn.id, "expired")
        assert (replaced.repeated, replaced.turn.id) == (True, first.turn.id)

    def test_a_request_that_started_is_not_started_twice(self, store: Store) -> None:
        first = store.submit(room(), "hello", owner=ME, request_id="r1", start=True)

        again = store.submit(room(), "hello", owner=ME, request_id="r1", start=True)

        assert first.opened is not None
        assert (again.opened, again.turn.id, again.turn.state) == (None, first.turn.id, "running")
        assert texts(store, first.session.id) == ["hello"]

    @pytest.mark.parametrize("mode", ["enqueue", "reject", "steer", "replace", "fork"])
    def test_a_repeated_request_is_found_before_if_busy_applies(self, store: Store, other: Store, mode: IfBusy) -> None:
        first = store.submit(room(), "hello", owner=ME, request_id="r1", start=True)
        sessions = store.about().sessions

        again = other.submit(room(), "hello", owner=ME, request_id="r1", if_busy=mode, expect_revision=1)

        assert (again.repeated, again.turn.id) == (True, first.turn.id)
        assert not again.turn.cancel_requested
        assert store.about().sessions == sessions

    def test_a_repeated_request_that_went_to_a_fork_is_found_there(self, store: Store, other: Store) -> None:
        start(store, room())
        first = store.submit(room(), "aside", owner=ME, request_id="r1", if_busy="fork")

        again = other.submit(room(), "aside", owner=ME, request_id="r1", if_busy="fork")

        assert (again.repeated, again.turn.id, again.session.id) == (True, first.turn.id, first.session.id)

    def test_a_repeated_steering_input_steers_once(self, store: Store) -> None:
        proof = start(store, room())

        turns = {
            store.submit(proof.session, "slower", owner=ME, request_id="r1", if_busy="steer").turn.id for _ in range(3)
        }

        assert len(turns) == 1
        assert store.renew(proof).inbox.steering == 1

    def test_a_request_id_with_other_content_is_refused(self, store: Store, other: Store) -> None:
        first = store.submit(room(), "hello", owner=ME, request_id="r1")

        with refused(store, first.session.id, RequestMismatch, first.turn.id):
            other.submit(room(), "something else", owner=ME, request_id="r1")
        with refused(store, first.session.id, RequestMismatch, first.turn.id):
            other.submit(room(), [Text("hel"), Text("lo")], owner=ME, request_id="r1")
        with refused(store, first.session.id, RequestMismatch, first.turn.id):
            other.record(room(), [message.user("hello")], owner=ME, request_id="r1")

    @pytest.mark.parametrize("again", ["by address", "by session"])
    @pytest.mark.parametrize("first", ["by address", "by session"])
    def test_a_request_is_one_turn_through_any_handle(self, store: Store, other: Store, first: str, again: str) -> None:
        session = store.resolve(room(), owner=ME).session.id
        handles: dict[str, Address | SessionId] = {"by address": room(), "by session": session}

        accepted = store.submit(handles[first], "hello", owner=ME, request_id="r1")
        repeated = other.submit(handles[again], "hello", owner=ME, request_id="r1")

        assert (repeated.repeated, repeated.turn) == (True, accepted.turn)

    @pytest.mark.parametrize("closed", ["expired", "ended"])
    @pytest.mark.parametrize("again", ["by address", "by the new session", "by the old session"])
    @pytest.mark.parametrize("first", ["by address", "by session"])
    def test_a_request_is_one_turn_also_when_its_address_leads_to_a_new_session(
        self, store: Store, clock: ManualClock, first: str, again: str, closed: str
    ) -> None:
        old = store.resolve(room(), owner=ME, ttl=Ttl(idle=HOUR)).session.id
        accepted = store.submit(
            room() if first == "by address" else old, "hello", owner=ME, request_id="r1", start=True
        )
        assert accepted.opened is not None
        store.finish(accepted.opened, Completed())
        if closed == "ended":
            store.end(old, owner=ME)
        clock.advance(HOUR)
        new = store.resolve(room(), owner=ME).session.id
        handles: dict[str, Address | SessionId] = {
            "by address": room(),
            "by the new session": new,
            "by the old session": old,
        }

        repeated = store.submit(handles[again], "hello", owner=ME, request_id="r1")

        assert (repeated.repeated, repeated.turn.id, repeated.session.id) == (True, accepted.turn.id, old)
        assert texts(store, new) == []

    @pytest.mark.parametrize("again", ["by address", "by session"])
    @pytest.mark.parametrize("first", ["by address", "by session"])
    def test_a_request_is_one_turn_also_when_its_address_is_pointed_elsewhere(
        self, store: Store, other: Store, first: str, again: str
    ) -> None:
        here = store.resolve(room(), owner=ME).session.id
        accepted = store.submit(room() if first == "by address" else here, "hello", owner=ME, request_id="r1")
        there = new_session(store)
        store.point(room(), there, owner=ME)

        repeated = other.submit(room() if again == "by address" else there, "hello", owner=ME, request_id="r1")

        assert (repeated.repeated, repeated.turn.id) == (True, accepted.turn.id)

    @pytest.mark.parametrize("again", ["by address", "by the new session", "by the old session"])
    @pytest.mark.parametrize("first", ["by address", "by the other address", "by session"])
    @pytest.mark.parametrize("change", ["expired", "pointed elsewhere"])
    def test_a_request_to_a_session_with_two_addresses_is_one_turn_by_each_of_them(
        self, store: Store, clock: ManualClock, first: str, again: str, change: str
    ) -> None:
        def deliver(to: Address | SessionId) -> Recorded:
            return store.record(to, [message.user("hello")], owner=ME, request_id="r1")

        old = store.resolve(room("a"), owner=ME, ttl=Ttl(idle=HOUR)).session.id
        store.point(room("b"), old, owner=ME)
        handles: dict[str, Address | SessionId] = {
            "by address": room("b"),
            "by the other address": room("a"),
            "by session": old,
        }
        turn = deliver(handles[first]).turn.id
        if change == "expired":
            clock.advance(HOUR)
            new = store.resolve(room("b"), owner=ME).session.id
        else:
            new = new_session(store)
            store.point(room("b"), new, owner=ME)
        later: dict[str, Address | SessionId] = {
            "by address": room("b"),
            "by the new session": new,
            "by the old session": old,
        }

        repeated = deliver(later[again])

        assert (repeated.repeated, repeated.turn.id) == (True, turn)
        assert texts(store, new) == []

    def test_a_request_is_one_turn_by_an_address_that_was_added_to_its_new_session(
        self, store: Store, clock: ManualClock
    ) -> None:
        first = store.record(room("a"), [message.user("hello")], owner=ME, request_id="r1", ttl=Ttl(idle=HOUR))
        clock.advance(HOUR)
        store.point(room("b"), store.resolve(room("a"), owner=ME).session.id, owner=ME)

        again = store.record(room("b"), [message.user("hello")], owner=ME, request_id="r1")

        assert (again.repeated, again.turn.id) == (True, first.turn.id)

    def test_a_request_that_went_to_a_fork_is_found_by_every_handle(self, store: Store, other: Store) -> None:
        busy = start(store, room()).session
        first = store.submit(room(), "aside", owner=ME, request_id="r1", if_busy="fork")
        handles = (room(), busy, first.session.id)

        again = [other.submit(to, "aside", owner=ME, request_id="r1", if_busy="fork") for to in handles]

        assert first.session.id != busy
        assert [(each.repeated, each.turn.id) for each in again] == [(True, first.turn.id)] * 3

    def test_recorded_messages_are_one_turn_through_any_handle(self, store: Store, other: Store) -> None:
        said = [message.user("hello"), message.assistant("hi")]
        first = store.record(room(), said, owner=ME, request_id="r1")

        again = other.record(first.session.id, said, owner=ME, request_id="r1")

        assert (again.repeated, again.turn.id) == (True, first.turn.id)
        assert texts(store, first.session.id) == ["hello", "hi"]

    def test_a_request_id_names_one_request_of_its_owner(self, store: Store) -> None:
        first = store.submit(room(), "hello", owner=ME, request_id="r1")
        elsewhere = new_session(store)

        for to in (room("cellar"), elsewhere):
            # Treating it as a repetition would lose this message silently.
            with refused(store, first.session.id, RequestMismatch, first.turn.id):
                store.submit(to, "hello", owner=ME, request_id="r1")
        with pytest.raises(RequestMismatch):
            store.record(elsewhere, [message.user("hello")], owner=ME, request_id="r1")
        others = [
            store.submit(room(), "hello", owner=STRANGER, request_id="r1"),
            store.submit(room(), "hello", owner=ME, request_id="r2"),
        ]
        assert not any(each.repeated for each in others)
        with pytest.raises(NotFound):
            store.at(room("cellar"), owner=ME)
        assert texts(store, elsewhere) == []

    def test_a_retry_under_the_id_of_another_sessions_retry_is_refused(self, store: Store) -> None:
        here, there = (run(store, room(name), outcome=Failed("no network")).turn.session for name in ("a", "b"))
        store.retry(here, owner=ME, request_id="r1")

        with refused(store, there, RequestMismatch):
            store.retry(there, owner=ME, request_id="r1")

    def test_owner_address_and_request_id_are_never_mixed_up(self, store: Store) -> None:
        first = store.submit(room("a"), "hello", owner="b", request_id="c")
        second = store.submit(room("a"), "hello", owner="b c", request_id="c")
        third = store.submit(room("a"), "hello", owner="b", request_id="c c")

        assert len({first.turn.id, second.turn.id, third.turn.id}) == 3

    def test_without_a_request_id_identical_inputs_are_two_turns(self, store: Store) -> None:
        first, second = (store.submit(room(), "hello", owner=ME).turn for _ in range(2))

        assert first.id != second.id
        assert store.waiting(first.session, owner=ME) == (first, second)

    def test_a_turn_remembers_its_request(self, store: Store) -> None:
        accepted = store.submit(room(), "hello", owner=ME, request_id="r1")

        assert accepted.turn.request_id == store.turn(accepted.turn.id, owner=ME).request_id == "r1"

    # --- the revision the sender saw --------------------------------------------------------------------------------

    def test_a_request_for_the_current_revision_is_accepted(self, store: Store) -> None:
        session = store.resolve(room(), owner=ME).session

        first = store.submit(room(), "one", owner=ME, expect_revision=session.revision)
        second = store.submit(session.id, "two", owner=ME, expect_revision=first.session.revision)

        assert [turn.id for turn in store.waiting(session.id, owner=ME)] == [first.turn.id, second.turn.id]

    @pytest.mark.parametrize("offset", [-1, 1])
    def test_a_request_for_another_revision_is_refused(self, store: Store, offset: int) -> None:
        session = store.resolve(room(), owner=ME).session
        expected = session.revision + offset

        with refused(store, session.id, RevisionMismatch):
            store.submit(room(), "one", owner=ME, expect_revision=expected)
        with refused(store, session.id, RevisionMismatch):
            store.record(session.id, [message.user("one")], owner=ME, expect_revision=expected)
        with pytest.raises(RevisionMismatch) as caught:
            store.submit(session.id, "one", owner=ME, expect_revision=expected, start=True)
        assert (caught.value.expected, caught.value.actual) == (expected, session.revision)

    def test_a_refused_request_makes_no_session(self, store: Store) -> None:
        bystander = new_session(store)

        with refused(store, bystander, RevisionMismatch):
            store.submit(room(), "one", owner=ME, expect_revision=99)
        with refused(store, bystander, RevisionMismatch):
            store.record(room(), [message.user("one")], owner=ME, expect_revision=99)

        assert store.resolve(room(), owner=ME).how == "created"

    def test_a_refused_request_replaces_no_session(self, store: Store) -> None:
        ended = store.resolve(room(), owner=ME).session.id
        store.end(ended, owner=ME)

        with refused(store, ended, RevisionMismatch):
            store.submit(room(), "one", owner=ME, expect_revision=99)

        found = store.resolve(room(), owner=ME)
        assert (found.how, found.generation) == ("replaced", 2)
