"""Watching: how a follower learns, cheaply, that something has happened."""

import threading
from collections.abc import Callable
from itertools import pairwise

import pytest

from backstay.model.content import Text
from backstay.model.ids import IdSource
from backstay.model.session import Ttl
from backstay.model.turn import Completed
from backstay.store import Store
from backstay.testing.clock import ManualClock
from backstay.testing.contract.base import ContractBase
from backstay.testing.contract.makers import ME, STRANGER, enqueue, new_session, room, run, say, start, talk

# What leaves everything as it was.
QUIET: dict[str, Callable[[Store], object]] = {
    "reads": lambda store: (store.list(owner=ME), store.about(), store.has_work(["cook"])),
    "an empty reaping": lambda store: store.reap(),
    "the version itself": lambda store: [store.version() for _ in range(5)],
}


def asked_at_once(store: Store, threads: int) -> set[int]:
    """The versions that so many threads are told at the same time."""
    told: set[int] = set()
    together = threading.Barrier(threads)

    def ask() -> None:
        together.wait()
        told.update(store.version() for _ in range(5))

    crowd = [threading.Thread(target=ask) for _ in range(threads)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    return told


class WatchContract(ContractBase):
    """Facts about watching."""

    def test_every_commit_of_any_handle_changes_the_version(self, store: Store, other: Store) -> None:
        session = new_session(store)
        seen = [store.version()]

        for handle in [store, other] * 3:
            handle.touch(session, owner=ME)
            seen.append(store.version())

        assert all(earlier != later for earlier, later in pairwise(seen))

    def test_a_checkpoint_changes_the_version(self, store: Store, other: Store) -> None:
        proof = start(store, room())
        before = other.version()

        say(store, proof, Text("one"))

        assert other.version() != before

    @pytest.mark.parametrize("look", QUIET.values(), ids=QUIET.keys())
    def test_looking_does_not_change_the_version(
        self, store: Store, other: Store, look: Callable[[Store], object]
    ) -> None:
        talk(store, new_session(store))
        before = store.version()

        look(store)
        look(other)

        assert store.version() == before

    def test_the_version_is_the_same_whoever_asks(self, store: Store) -> None:
        session = new_session(store)
        versions = []
        for threads in (1, 2, 3, 4, 5, 6, 6, 6):
            store.touch(session, owner=ME)
            versions.append(asked_at_once(store, threads))

        assert [len(told) for told in versions] == [1] * 8
        assert len(set.union(*versions)) == 8

    def test_a_head_is_the_number_of_the_last_event(self, store: Store, other: Store) -> None:
        kitchen, cellar = run(store, room("kitchen")).turn.session, new_session(store)
        enqueue(other, cellar)

        heads = store.heads([(kitchen, ME), (cellar, ME)])

        assert heads == {each: store.session(each, owner=ME).last_event for each in (kitchen, cellar)}

    def test_a_head_moves_with_every_event(self, store: Store, other: Store) -> None:
        proof = start(store, room())
        before = other.heads([(proof.session, ME)])[proof.session]

        proof = say(store, proof, Text("one"), Text("two"))

        assert other.heads([(proof.session, ME)]) == {proof.session: before + 2}
        store.finish(proof, Completed())
        assert other.heads([(proof.session, ME)]) == {proof.session: before + 3}

    def test_what_is_anothers_or_nowhere_has_no_head(self, store: Store, clock: ManualClock) -> None:
        mine, theirs = new_session(store), new_session(store, owner=STRANGER)
        nowhere = IdSource(clock).session()

        heads = store.heads([(mine, ME), (theirs, ME), (mine, STRANGER), (nowhere, ME)])

        assert set(heads) == {mine}
        assert store.heads([]) == {}

    def test_a_closed_session_keeps_its_head(self, store: Store, clock: ManualClock) -> None:
        session = store.create(owner=ME, ttl=Ttl(idle=60)).id
        clock.advance(60)
        store.collect()

        assert store.heads([(session, ME)]) == {session: store.session(session, owner=ME).last_event}
