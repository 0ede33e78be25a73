"""Leases: which handle may write a session, how a dead holder is noticed, and the end of its turn."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from backstay.errors import LeaseLost, RevisionMismatch, SessionBusy
from backstay.model import event, message
from backstay.model.content import Text, ToolCall, ToolResult, Usage
from backstay.model.ids import TurnId
from backstay.model.turn import Cancelled, Completed, Interrupted, OpenTurn
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import LEASE, ContractBase, OpenAnother
from tests.contract.builders import (
    AGENT,
    ME,
    STRANGER,
    bodies_of,
    enqueue,
    events_of,
    look,
    new_session,
    refused,
    room,
    said_in,
    say,
    start,
    talk,
    texts,
)
from tests.touching import touch

TICK = 0.001
YEARS = 10 * 365 * 24 * 3600 * 1000

Look = Callable[[Store, OpenTurn], object]
Write = Callable[[Store, OpenTurn], object]
Go = Callable[[Store, ManualClock], object]

# Every verb that finds a session with a dead holder ends its turn.
LOOKS: dict[str, Look] = {
    "session": lambda store, gone: store.session(gone.session, owner=ME),
    "list": lambda store, _: store.list(owner=ME),
    "messages": lambda store, gone: store.messages(gone.session, owner=ME),
    "turn": lambda store, gone: store.turn(gone.id, owner=ME),
    "calls": lambda store, gone: store.calls(gone.id, owner=ME),
    "ledger": lambda store, gone: store.ledger(gone.id, owner=ME),
    "waiting": lambda store, gone: store.waiting(gone.session, owner=ME),
    "events_after": lambda store, gone: store.events_after(gone.session, owner=ME),
    "resolve": lambda store, _: store.resolve(room(), owner=ME),
    "rename": lambda store, gone: store.rename(gone.session, "Dinner", owner=ME),
    "pin": lambda store, gone: store.pin(gone.session, True, owner=ME),
    "archive": lambda store, gone: store.archive(gone.session, True, owner=ME),
    "tag": lambda store, gone: store.tag(gone.session, owner=ME, add=["home"]),
    "point": lambda store, gone: store.point(room("cellar"), gone.session, owner=ME),
    "end": lambda store, gone: store.end(gone.session, owner=ME),
    "submit to the address": lambda store, _: store.submit(room(), "next", owner=ME),
    "submit to the session": lambda store, gone: store.submit(gone.session, "next", owner=ME, if_busy="reject"),
    "submit and start": lambda store, gone: store.submit(gone.session, "next", owner=ME, start=True),
    "steer": lambda store, gone: store.submit(gone.session, "next", owner=ME, if_busy="steer"),
    "record": lambda store, gone: store.record(gone.session, [message.user("next")], owner=ME, if_busy="reject"),
    "claim": lambda store, _: store.claim([AGENT]),
    "claim in the session": lambda store, gone: store.claim([AGENT], session=gone.session, owner=ME),
    "cancel": lambda store, gone: store.cancel(gone.id, owner=ME),
    "resume": lambda store, gone: store.resume(gone.id, owner=ME),
    "undo": lambda store, gone: store.undo(gone.session, owner=ME),
    "retry": lambda store, gone: store.retry(gone.session, owner=ME),
    "edit": lambda store, gone: store.edit(gone.session, gone.input.id, "else", owner=ME),
    "fork": lambda store, gone: store.fork(gone.session, owner=ME),
    "rotate": lambda store, gone: store.rotate(
        gone.session, [message.summary("so far")], owner=ME, parent=gone.window, keep_from=1
    ),
    "reap": lambda store, _: store.reap(),
}

WRITES: dict[str, Write] = {
    "renew": lambda store, proof: store.renew(proof),
    "inbox": lambda store, proof: store.inbox(proof),
    "checkpoint": lambda store, proof: store.checkpoint(proof, [Text("too late")]),
    "an empty checkpoint": lambda store, proof: store.checkpoint(proof, [], take_steering=True),
    "finish": lambda store, proof: store.finish(proof, Completed(), bodies=[Text("too late")], agents=[AGENT]),
    "rotate": lambda store, proof: store.rotate(
        proof.session, [message.summary("so far")], owner=ME, parent=proof.window, keep_from=1, turn=proof
    ),
}

# The ways in which a holder can be gone.
GONE: dict[str, Go] = {
    "its handle was closed": lambda holder, _: holder.close(),
    "its lease lapsed": lambda _, clock: clock.advance(LEASE),
}

every_look = pytest.mark.parametrize("look_at", LOOKS.values(), ids=LOOKS.keys())
every_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
every_death = pytest.mark.parametrize("go", GONE.values(), ids=GONE.keys())


def ending_of(store: Store, session: OpenTurn) -> event.TurnEnded:
    """The event of the end of this turn; there is exactly one."""
    (ending,) = [
        each.body
        for each in events_of(store, session.session)
        if each.turn == session.id and isinstance(each.body, event.TurnEnded)
    ]
    return ending


class LeaseContract(ContractBase):
    """Facts about holders, alive and gone."""

    # --- alive ------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("look_at", [LOOKS[name] for name in LOOKS if name != "end"])
    def test_the_turn_of_a_living_holder_is_never_ended_by_others(
        self, store: Store, other: Store, look_at: Look
    ) -> None:
        proof = start(store, room())

        # Some of these verbs are refused while a turn runs; that is their own fact.
        with suppress(SessionBusy):
            look_at(other, proof)

        assert other.reap() == ()
        assert store.finish(proof, Completed()).turn.outcome == Completed()

    def test_a_lease_lasts_for_its_stated_time(self, store: Store, other: Store, clock: ManualClock) -> None:
        proof = start(store, room())
        assert proof.lease_until == clock.boot() + LEASE * 1000

        clock.advance(LEASE - TICK)
        assert other.session(proof.session, owner=ME).running == proof.id
        clock.advance(TICK)
        assert other.session(proof.session, owner=ME).running is None

    def test_a_handle_chooses_how_long_its_leases_last(
        self, open_another: OpenAnother, store: Store, clock: ManualClock
    ) -> None:
        short = open_another(lease_seconds=2)
        proof = start(short, room())

        clock.advance(2 - TICK)
        assert store.reap() == ()
        clock.advance(TICK)
        assert store.reap() == (proof.id,)

    @pytest.mark.parametrize(
        "keep",
        [
            lambda store, proof: store.renew(proof).open,
            lambda store, proof: store.checkpoint(proof, [Text("still here")]).open,
            lambda store, proof: store.checkpoint(proof, []).open,
        ],
        ids=["renew", "checkpoint", "an empty checkpoint"],
    )
    def test_every_sign_of_life_lengthens_the_lease(
        self, store: Store, other: Store, clock: ManualClock, keep: Callable[[Store, OpenTurn], OpenTurn]
    ) -> None:
        proof = start(store, room())
        for _ in range(3):
            clock.advance(LEASE - TICK)
            proof = keep(store, proof)

        clock.advance(LEASE - TICK)

        assert other.reap() == ()
        assert proof.lease_until == clock.boot() + 1

    def test_organising_by_others_does_not_lengthen_the_lease(
        self, store: Store, other: Store, clock: ManualClock
    ) -> None:
        proof = start(store, room())
        clock.advance(LEASE - TICK)
        other.rename(proof.session, "Dinner", owner=ME)
        touch(store, proof.session, owner=ME)

        clock.advance(TICK)

        assert other.reap() == (proof.id,)

    @pytest.mark.parametrize("jump", [YEARS, -YEARS], ids=["ahead", "back"])
    def test_a_jump_of_the_wall_clock_changes_no_lease(
        self, store: Store, other: Store, clock: ManualClock, jump: int
    ) -> None:
        proof = start(store, room())

        clock.set_wall(clock.now() + jump)

        assert other.session(proof.session, owner=ME).running == proof.id
        assert other.reap() == ()
        clock.advance(LEASE - TICK)
        assert other.reap() == ()
        clock.advance(TICK)
        assert other.reap() == (proof.id,)

    @pytest.mark.parametrize("jump", [YEARS, -YEARS], ids=["ahead", "back"])
    def test_a_lease_kept_after_a_jump_of_the_wall_clock_is_neither_longer_nor_shorter(
        self, store: Store, other: Store, clock: ManualClock, jump: int
    ) -> None:
        proof = start(store, room())
        clock.set_wall(clock.now() + jump)

        leases = [store.renew(proof).open, say(store, proof, Text("one")), start(other, room("cellar"))]

        assert [lease.lease_until - clock.boot() for lease in leases] == [LEASE * 1000] * 3

    def test_a_holder_that_slept_and_was_not_reaped_continues(self, store: Store, clock: ManualClock) -> None:
        proof = start(store, room())
        clock.advance(10 * LEASE)

        proof = say(store, proof, Text("good morning"))

        assert store.reap() == ()
        assert store.finish(proof, Completed()).turn.outcome == Completed()

    def test_closing_a_handle_without_leases_affects_no_other(self, open_another: OpenAnother, store: Store) -> None:
        proof = start(store, room())

        open_another().close()

        assert store.reap() == ()
        assert store.session(proof.session, owner=ME).running == proof.id

    def test_two_handles_hold_two_sessions_side_by_side(self, store: Store, other: Store) -> None:
        mine, theirs = start(store, room("kitchen")), start(other, room("cellar"))

        assert mine.holder != theirs.holder
        say(store, mine, Text("one"))
        say(other, theirs, Text("two"))
        assert store.reap() == ()

    def test_every_new_holder_has_a_greater_fence(self, store: Store, other: Store) -> None:
        session = new_session(store)
        fences = []
        for handle in (store, other) * 2:
            proof = start(handle, session)
            fences.append(proof.fence)
            handle.finish(proof, Completed())

        assert fences == sorted(set(fences))

    # --- gone -------------------------------------------------------------------------------------------------------

    @every_look
    def test_the_first_read_ends_the_turn_of_a_dead_holder(
        self, open_another: OpenAnother, store: Store, look_at: Look
    ) -> None:
        holder = open_another()
        gone = say(holder, start(holder, room()), Text("half an ans"))
        holder.close()

        look_at(store, gone)

        assert store.reap() == ()
        turn = store.turn(gone.id, owner=ME)
        assert turn.state == "ended"
        assert isinstance(turn.outcome, Interrupted)
        assert isinstance(ending_of(store, gone).outcome, Interrupted)

    @pytest.mark.parametrize(
        "look_at",
        [
            lambda store, turn: store.edit_waiting(turn, "else", owner=ME),
            lambda store, turn: store.withdraw(turn, owner=ME),
            lambda store, turn: store.cancel(turn, owner=ME),
            lambda store, _: store.claim([AGENT]),
        ],
        ids=["edit_waiting", "withdraw", "cancel", "claim"],
    )
    def test_an_operation_on_a_waiting_turn_ends_the_dead_turn_before_it(
        self, open_another: OpenAnother, store: Store, look_at: Callable[[Store, TurnId], object]
    ) -> None:
        holder = open_another()
        gone = start(holder, room())
        waiting = enqueue(holder, gone.session)
        holder.close()

        look_at(store, waiting.id)

        assert store.reap() == ()
        assert isinstance(store.turn(gone.id, owner=ME).outcome, Interrupted)

    @every_death
    def test_a_holder_can_be_gone_in_more_than_one_way(
        self, open_another: OpenAnother, store: Store, clock: ManualClock, go: Go
    ) -> None:
        holder = open_another()
        gone = start(holder, room())

        go(holder, clock)

        session = store.session(gone.session, owner=ME)
        assert (session.running, session.holder, session.turns) == (None, None, 1)
        assert isinstance(store.turn(gone.id, owner=ME).outcome, Interrupted)

    def test_after_a_restart_of_its_machine_a_holder_counts_as_dead_within_its_lease(
        self, open_another: OpenAnother, store: Store, clock: ManualClock
    ) -> None:
        gone = start(open_another(), room())

        clock.reboot()
        # An engine that many machines share cannot tell a restart from another machine: it watches for a lease time.
        store.reap()
        clock.advance(LEASE)
        store.reap()

        assert isinstance(store.turn(gone.id, owner=ME).outcome, Interrupted)
        assert store.session(gone.session, owner=ME).holder is None

    def test_a_closed_handle_is_noticed_at_once(
        self, open_another: OpenAnother, store: Store, clock: ManualClock
    ) -> None:
        holder = open_another(lease_seconds=1e6)
        gone = start(holder, room())
        before = clock.boot()

        holder.close()

        assert store.reap() == (gone.id,)
        assert clock.boot() == before

    @every_write
    @every_death
    def test_a_holder_that_lost_its_lease_cannot_write(
        self, open_another: OpenAnother, store: Store, clock: ManualClock, go: Go, write: Write
    ) -> None:
        holder = open_another()
        proof = say(holder, start(holder, room()), Text("half an ans"))
        go(holder, clock)
        store.reap()

        # The proof of a closed handle is still valid in any other handle, so only the fence can stop it.
        with refused(store, proof.session, LeaseLost, proof.id):
            write(store, proof)

    @every_write
    def test_a_holder_that_wakes_late_cannot_write_into_the_next_turn(
        self, store: Store, other: Store, clock: ManualClock, write: Write
    ) -> None:
        slow = start(store, room(), "one")
        waiting = enqueue(store, slow.session, "three")
        clock.advance(LEASE)
        quick = other.claim([AGENT])
        assert quick is not None
        assert quick.id == waiting.id

        with refused(other, slow.session, LeaseLost, slow.id, quick.id):
            write(store, slow)

        assert other.finish(quick, Completed(), bodies=[Text("four")]).unbroken
        assert texts(store, slow.session) == ["one", "three", "four"]

    def test_even_the_handle_itself_ends_a_turn_it_forgot_to_renew(self, store: Store, clock: ManualClock) -> None:
        proof = start(store, room())
        clock.advance(LEASE)

        assert store.session(proof.session, owner=ME).running is None

        with refused(store, proof.session, LeaseLost, proof.id):
            store.renew(proof)

    # --- the end of the turn ----------------------------------------------------------------------------------------

    def test_checkpointed_output_is_kept_as_a_partial_message(
        self, store: Store, other: Store, clock: ManualClock
    ) -> None:
        proof = start(store, room(), "look")
        proof = say(store, proof, Text("One moment."), ToolCall("c1", "search"), ToolResult("c1", "found"))
        say(store, proof, Text("I fou"), Usage(output_tokens=7))
        before = other.session(proof.session, owner=ME)
        clock.advance(LEASE)

        assert other.reap() == (proof.id,)

        said = said_in(other, proof.session)
        assert [(each.role, each.text, each.partial) for each in said] == [
            ("user", "look", False),
            ("assistant", "One moment.", False),
            ("tool", "", False),
            ("assistant", "I fou", True),
        ]
        after, turn = other.session(proof.session, owner=ME), other.turn(proof.id, owner=ME)
        assert (after.revision, after.context) == (before.revision + 1, before.context + 1)
        assert after.fence > before.fence
        assert (turn.ended_at, turn.usage) == (clock.now(), Usage(output_tokens=7))

    def test_a_turn_without_output_leaves_its_input(self, store: Store, other: Store, clock: ManualClock) -> None:
        proof = start(store, room(), "hello")
        clock.advance(LEASE)

        other.reap()

        (said,) = said_in(other, proof.session)
        assert (said.text, said.partial) == ("hello", False)

    def test_a_turn_that_was_asked_to_stop_is_cancelled(self, store: Store, other: Store, clock: ManualClock) -> None:
        proof = say(store, start(store, room()), Text("half an ans"))
        other.cancel(proof.id, owner=ME)
        clock.advance(LEASE)

        other.reap()

        assert isinstance(other.turn(proof.id, owner=ME).outcome, Cancelled)
        assert isinstance(ending_of(other, proof).outcome, Cancelled)
        assert said_in(other, proof.session)[-1].partial

    def test_calls_without_a_result_may_have_run(self, store: Store, other: Store, clock: ManualClock) -> None:
        proof = say(store, start(store, room()), ToolCall("c1", "mail"), ToolCall("c2", "mail"), ToolCall("c3", "mail"))
        say(store, proof, ToolResult("c2", "sent"))
        clock.advance(LEASE)

        other.reap()

        assert ending_of(other, proof).may_have_run == ("c1", "c3")
        assert [call.effect for call in other.calls(proof.id, owner=ME)] == ["unknown", "returned", "unknown"]

    def test_taken_steering_shares_the_fate_of_the_turn(self, store: Store, other: Store, clock: ManualClock) -> None:
        proof = start(store, room(), "sing")
        taken = store.submit(proof.session, "slower", owner=ME, if_busy="steer").turn
        store.checkpoint(proof, [Text("La")], take_steering=True)
        left = store.submit(proof.session, "louder", owner=ME, if_busy="steer").turn
        clock.advance(LEASE)

        other.reap()

        assert isinstance(other.turn(taken.id, owner=ME).outcome, Interrupted)
        assert texts(other, proof.session) == ["sing", "La", "slower"]
        assert [turn.id for turn in other.waiting(proof.session, owner=ME)] == [left.id]

    def test_turns_that_waited_behind_a_dead_turn_can_be_claimed(
        self, store: Store, other: Store, clock: ManualClock
    ) -> None:
        gone = start(store, room())
        waiting = enqueue(store, gone.session)
        clock.advance(LEASE)

        proof = other.claim([AGENT])

        assert proof is not None
        assert (proof.id, proof.holder) == (waiting.id, other.worker)
        assert isinstance(other.turn(gone.id, owner=ME).outcome, Interrupted)

    def test_a_read_does_not_start_a_waiting_turn(self, store: Store, other: Store, clock: ManualClock) -> None:
        gone = start(store, room())
        waiting = enqueue(store, gone.session)
        clock.advance(LEASE)

        session = other.session(gone.session, owner=ME)

        assert (session.running, session.waiting) == (None, 1)
        assert other.turn(waiting.id, owner=ME).state == "waiting"

    def test_the_events_have_no_gap_where_a_turn_was_reaped(
        self, store: Store, other: Store, clock: ManualClock
    ) -> None:
        proof = say(store, start(store, room()), Text("one"), Text("two"))
        clock.advance(LEASE)

        proof = start(other, room())
        other.finish(proof, Completed())

        numbers = [each.number for each in events_of(store, proof.session)]
        fences = [each.fence for each in events_of(store, proof.session)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert fences == sorted(fences)

    # --- once -------------------------------------------------------------------------------------------------------

    def test_a_turn_is_reaped_exactly_once(self, open_another: OpenAnother, store: Store, other: Store) -> None:
        holder = open_another()
        proofs = [start(holder, room(name)) for name in ("kitchen", "cellar", "garden")]
        theirs = start(holder, room(), owner=STRANGER)
        alive = start(other, room("attic"))
        holder.close()

        reaped = [store.reap(), other.reap(), store.reap()]

        assert sorted(reaped[0]) == sorted([*(proof.id for proof in proofs), theirs.id])
        assert reaped[1:] == [(), ()]
        for proof in proofs:
            assert isinstance(ending_of(store, proof).outcome, Interrupted)
        assert store.session(alive.session, owner=ME).running == alive.id

    def test_a_second_read_changes_nothing(self, store: Store, other: Store, clock: ManualClock) -> None:
        proof = say(store, start(store, room()), Text("half an ans"))
        clock.advance(LEASE)
        before = look(store, proof.session, [proof.id])
        clock.advance(LEASE)

        other.reap()

        assert look(other, proof.session, [proof.id]) == before

    def test_a_rejected_operation_leaves_the_dead_turn_to_be_reaped(
        self, store: Store, other: Store, clock: ManualClock
    ) -> None:
        session = new_session(store)
        talk(store, session)
        proof = start(store, session)
        clock.advance(LEASE)

        with pytest.raises(RevisionMismatch):
            other.undo(session, owner=ME, expect_revision=1)

        assert other.reap() == (proof.id,)

    def test_the_events_of_a_reaped_turn_end_with_its_end(self, open_another: OpenAnother, store: Store) -> None:
        holder = open_another()
        gone = say(holder, start(holder, room()), Text("half an ans"))
        holder.close()

        assert isinstance(bodies_of(store, gone.session)[-1], event.TurnEnded)
