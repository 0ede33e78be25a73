"""Output that a database lost in a crash while its holder was alive, and repeated writes of a holder."""

import msgspec
import pytest

from backstay.model import event
from backstay.model.content import Body, Text, Thought, ToolCall, ToolResult, Usage
from backstay.model.history.unsynced import SYNCED, UNSYNCED_BYTES
from backstay.model.turn import Completed, Interrupted, OpenTurn
from backstay.store import Store
from tests.contract.base import ContractBase
from tests.contract.builders import ME, bodies_of, events_of, look, new_session, room, said_in, say, start, talk, texts
from tests.contract.history.compaction_turns import held, rotate


def forgotten(proof: OpenTurn, *words: Text | Thought) -> OpenTurn:
    """The proof of a holder that stored these words, each in a checkpoint, before the store lost them."""
    for word in words:
        unsynced = proof.unsynced.plus(proof.event, (word,))
        proof = msgspec.structs.replace(proof, event=proof.event + 1, unsynced=unsynced)
    return proof


class LostTailContract(ContractBase):
    """Facts about words that are stored without a sync, and about writes that are made again."""

    @pytest.mark.parametrize("write", ["checkpoint", "tool call", "renewal", "rotation", "end"])
    def test_each_write_of_a_holder_stores_lost_events_again(self, store: Store, write: str) -> None:
        session = new_session(store)
        talk(store, session)
        proof = forgotten(say(store, start(store, session), Text("one ")), Thought("hm"), Text("two "))

        match write:
            case "checkpoint":
                after = say(store, proof, Text("three "))
            case "tool call":
                after = say(store, proof, ToolCall("c1", "look"), ToolResult("c1", "dark"))
            case "renewal":
                after = store.renew(proof).open
            case "rotation":
                after = held(rotate(store, proof, 1))
            case _:
                after = proof
        finished = store.finish(after, Completed(), bodies=[Text("four")])

        assert finished.turn.outcome == Completed()
        assert finished.unbroken
        answers = [each for each in said_in(store, session) if each.turn == proof.id and each.role == "assistant"]
        parts = [part for answer in answers for part in answer.parts]
        assert parts[:2] == [Text("one "), Thought("hm")]
        said = "one two three four" if write == "checkpoint" else "one two four"
        assert "".join(part.text for part in parts if isinstance(part, Text)) == said
        assert not any(answer.partial for answer in answers)
        story_of_it = bodies_of(store, session)
        place = story_of_it.index(event.TailLost(rewritten=True))
        assert story_of_it[place + 1 : place + 3] == [event.ThoughtDelta("hm"), event.TextDelta("two ")]
        assert write == "end" or (after.fence == proof.fence + 1 and not after.unsynced)

    def test_readers_of_lost_events_read_again(self, store: Store, other: Store) -> None:
        proof = say(store, start(store, room()), Text("one "))
        kept = events_of(store, proof.session)[-1].cursor
        proof = forgotten(proof, Text("two "), Text("three "))
        lost = [msgspec.structs.replace(kept, number=kept.number + ahead) for ahead in (1, 2)]
        # Another handle writes before the holder does: this event gets the number of a lost one.
        other.rename(proof.session, "Soup", owner=ME)

        say(store, proof, Text("four"))

        assert [store.events_after(proof.session, cursor, owner=ME).gap for cursor in lost] == ["resync", "resync"]
        assert store.events_after(proof.session, kept, owner=ME).gap is None
        assert [each.number for each in events_of(store, proof.session)] == list(range(1, proof.event + 4))

    @pytest.mark.parametrize("left", ["", "one "])
    def test_a_turn_with_unrecoverable_lost_output_does_not_complete(self, store: Store, left: str) -> None:
        proof = start(store, room())
        proof = say(store, proof, Text(left)) if left else proof
        proof = msgspec.structs.replace(forgotten(proof, Text("two ")), unsynced=SYNCED)

        finished = store.finish(proof, Completed())

        assert isinstance(finished.turn.outcome, Interrupted)
        assert event.TailLost() in bodies_of(store, proof.session)
        assert [(each.text, each.partial) for each in said_in(store, proof.session)[1:]] == (
            [(left, True)] if left else []
        )

    def test_a_proof_keeps_output_until_a_write_is_synced(self, store: Store) -> None:
        proof = say(store, say(store, start(store, room()), Text("one ")), Thought("hm"), Text("two"))

        assert [words for _, words in proof.unsynced.since(0)] == [
            (Text("one "),),
            (Thought("hm"), Text("two")),
        ]
        assert say(store, proof, ToolCall("c1", "look")).unsynced == SYNCED
        assert store.renew(store.checkpoint(proof, [ToolCall("c1", "look")]).open).open.unsynced == SYNCED

    def test_a_proof_keeps_a_bounded_amount_of_output(self, store: Store) -> None:
        proof = start(store, room())
        sizes = []
        for _ in range(40):
            proof = say(store, proof, Text("word " * 20_000))
            sizes.append(sum(len(each.text) for _, words in proof.unsynced.since(0) for each in words))

        assert max(sizes) < UNSYNCED_BYTES + 100_001
        assert sizes.count(0) == 40 // 12

    # --- a write whose answer was lost ------------------------------------------------------------------------------

    def test_a_checkpoint_that_is_repeated_is_stored_once(self, store: Store, other: Store) -> None:
        proof = start(store, room())
        other.submit(proof.session, "not so fast", owner=ME, if_busy="steer")
        bodies: list[Body] = [
            Text("one "),
            ToolCall("c1", "look", {"at": [1.0]}),
            ToolResult("c1", "dark"),
            Usage(input_tokens=1),
        ]
        first = store.checkpoint(proof, bodies, take_steering=True)
        before = look(store, proof.session, [proof.id])

        again = store.checkpoint(proof, bodies, take_steering=True)

        assert (again.keys, again.steering, again.open.event) == (first.keys, first.steering, first.open.event)
        assert look(store, proof.session, [proof.id]) == before
        assert store.finish(again.open, Completed(), bodies=[Text("two")]).turn.outcome == Completed()
        assert texts(store, proof.session) == ["hello", "one ", "", "not so fast", "two"]

    def test_output_that_is_repeated_at_the_end_of_a_turn_is_stored_once(self, store: Store) -> None:
        proof = start(store, room())
        say(store, proof, Text("one "), Text("two "))

        store.finish(proof, Completed(), bodies=[Text("one "), Text("two "), Text("three")])

        assert texts(store, proof.session) == ["hello", "one two three"]

    def test_output_that_differs_from_the_stored_output_is_not_a_repetition(self, store: Store) -> None:
        proof = start(store, room())
        say(store, proof, Text("one "), Text("two "))

        after = say(store, proof, Text("three"))

        store.finish(after, Completed())
        assert texts(store, proof.session) == ["hello", "one two three"]
