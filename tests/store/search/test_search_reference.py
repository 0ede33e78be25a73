"""Search compared with a plain search of all messages: after every history both show the same hits."""

import random
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path

import pytest

from backstay import Store, open_store
from backstay.errors import BackstayError
from backstay.model import message
from backstay.model.ids import SessionId
from backstay.model.search.results import SearchHit
from backstay.store.verbs.best_matches import COMMON
from backstay.testing import ManualClock
from tests.databases import Place
from tests.effort import tries
from tests.store.plain_store import PlainSession, PlainStore, Said, reach
from tests.store.search.plain_search import PlainHit, PlainSearch

OWNERS = ("ada", "bob")
ROLES = ("user", "assistant")
LEASE = 30.0
MOST = 1000
STEPS = 70

# Words of very different frequency, so that a common one fills pages and a rare one is found once.
VOCABULARY = (
    ["fox"] * 12 + ["the"] * 8 + "lazy dog naïve Naive jumps 东京 塔 京 日本語 さくら 서울 café 42 o'clock".split()
)
QUERIES = (
    "fox",
    "the",
    "the fox",
    "fox dog",
    '"the fox"',
    '"fox fox"',
    "naive",
    "ju*",
    '"the fo"*',
    "东京",
    "京",
    "さくら",
    "京塔",
    "fox -dog",
    'the -"the fox" -lazy',
    "東",
    "cafe 42",
    "absent",
)
# Each is a single term with very many matches.
COMMON_QUERIES = ("fox", "the", "fo*")


class History:
    """A plain store and a real one that run the same random verbs."""

    def __init__(self, store: Store, clock: ManualClock, seed: int) -> None:
        self.store, self.plain, self._chance = store, PlainStore(clock, LEASE), random.Random(seed)
        for owner in (*OWNERS, OWNERS[0]):
            session = self.plain.create(owner)
            session.id = store.create(owner=owner).id

    def go_on(self) -> None:
        """Run one random step. A step that both reject changes nothing."""
        verbs = [self._record] * 12 + [self._undo] * 3 + [self._redo, self._compact, self._compact, self._fork]
        if len(self.plain.sessions) > 4:
            verbs.append(self._delete)
        session = self._chance.choice(self.plain.sessions)
        self._chance.choice(verbs)(session)

    def check(self, *, ordered: bool, queries: tuple[str, ...] = QUERIES, most: int = MOST) -> None:
        """Whole pages, short pages, and pages of one session show what the plain search shows."""
        expected = PlainSearch(self.plain)
        for query in queries:
            for owner in OWNERS:
                hits = expected.hits(query, owner, limit=most)
                self._compare(hits, query, most, owner=owner, ordered=ordered)
            only = self._chance.choice(self.plain.sessions)
            found = self.store.search(query, owner=only.owner, session=only.id, limit=most).hits
            same(expected.hits(query, only.owner, only, limit=most), found, ordered=ordered)

    def _compare(self, hits: list[PlainHit], query: str, most: int, *, owner: str, ordered: bool) -> None:
        found = self.store.search(query, owner=owner, limit=most).hits
        same(hits, found, ordered=ordered)
        for limit in (1, 3):
            assert self.store.search(query, owner=owner, limit=limit).hits == found[:limit]

    def fill(self, count: int) -> None:
        """Record this number of messages at once, in each session."""
        for session in self.plain.sessions:
            self._record(session, count)
        self.store.index()

    def rebuild(self) -> None:
        """The index is filled again, as after an upgrade."""
        self.store.rebuild_index()
        self.store.index()

    def _record(self, session: PlainSession, count: int = 0) -> None:
        said = [(role, [self._text()]) for role in islice(cycle(ROLES), count or self._chance.randint(1, 2))]
        self.plain.record(session, [*said], if_busy="reject", expect_revision=None)
        new = [(message.user if role == "user" else message.assistant)(text) for role, (text,) in said]
        self.store.record(_id(session), new, owner=session.owner)
        self._learn(session)

    def _text(self) -> str:
        count = self._chance.choice([1, 2, 3, 8, 20])
        return "".join(
            word + self._chance.choice([" ", " ", ", ", ".\n"]) for word in self._chance.choices(VOCABULARY, k=count)
        ).strip()

    def _undo(self, session: PlainSession) -> None:
        if _accepted(lambda: self.plain.undo(session, None)):
            self.store.undo(_id(session), owner=session.owner)

    def _redo(self, session: PlainSession) -> None:
        if _accepted(lambda: self.plain.redo(session, None)):
            self.store.redo(_id(session), owner=session.owner)

    def _compact(self, session: PlainSession) -> None:
        keep_from = self._chance.randint(0, len(session.messages))
        if keep_from:
            self.plain.rotate(session, session.window, keep_from, ["fox"], None)
            window = self.store.session(_id(session), owner=session.owner).window
            said = [message.summary("fox")]
            self.store.rotate(_id(session), said, owner=session.owner, parent=window, keep_from=keep_from)
            self._learn(session)

    def _fork(self, session: PlainSession) -> None:
        reachable: list[Said | None] = [said for said in reach(session.window) if said.role != "summary"]
        at = self._chance.choice([None, *reachable])
        fork = self.plain.fork(session, at)
        fork.id = self.store.fork(_id(session), owner=session.owner, at=None if at is None else at.id).id

    def _delete(self, session: PlainSession) -> None:
        self.plain.delete(session)
        self.store.delete(_id(session), owner=session.owner)

    def _learn(self, session: PlainSession) -> None:
        real = self.store.messages(_id(session), owner=session.owner).messages
        for plain, stored in zip(session.messages, real, strict=True):
            assert plain.id in (None, stored.id)
            plain.id = stored.id


def _id(session: PlainSession) -> SessionId:
    assert session.id is not None
    return session.id


def _accepted(verb: Callable[[], None]) -> bool:
    """Whether the plain store accepted it."""
    try:
        verb()
    except BackstayError:
        return False
    return True


def same(expected: list[PlainHit], found: tuple[SearchHit, ...], *, ordered: bool) -> None:
    """Both have the same hits; where the engine ranks by BM25, in the same order."""
    real = [PlainHit(hit.session, hit.message, hit.snippet) for hit in found]
    assert real == expected if ordered else sorted(real) == sorted(expected)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(place: Place, clock: ManualClock) -> Iterator[Store]:
    with open_store(place, clock=clock, lease_seconds=LEASE) as store:
        yield store


@pytest.mark.parametrize("seed", range(tries(2, 40, 400)))
def test_a_search_shows_the_same_hits_as_a_plain_search_of_all_messages(
    store: Store, clock: ManualClock, place: Place, seed: int
) -> None:
    history = History(store, clock, seed)
    ordered = isinstance(place, Path)

    for step in range(STEPS):
        history.go_on()
        if step % 14 == 13:
            history.check(ordered=ordered)


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize("seed", range(tries(1, 20, 200)))
def test_a_search_for_a_common_word_stays_exact_while_messages_come_and_go(
    store: Store, clock: ManualClock, seed: int
) -> None:
    history = History(store, clock, seed)
    for _ in range(2):
        history.fill(COMMON)

    for step in range(18):
        if step % 6 == 0:
            # The first page is ranked among all, and kept; the others are read from what was kept.
            history.check(ordered=True, queries=COMMON_QUERIES, most=40)
        history.go_on()
    history.rebuild()
    history.check(ordered=True, queries=COMMON_QUERIES, most=40)


@pytest.mark.engines("sqlite")
def test_a_key_that_is_given_to_another_message_is_ranked_again(store: Store) -> None:
    session, newest = (store.create(owner=OWNERS[0]).id for _ in range(2))
    store.record(session, [message.user(f"fox{' and more' * (n % 9 + 3)}") for n in range(COMMON)], owner=OWNERS[0])
    store.record(newest, [message.user("fox")], owner=OWNERS[0])
    assert store.search("fox", owner=OWNERS[0]).hits[0].session == newest

    store.delete(newest, owner=OWNERS[0])
    store.record(session, [message.user("a wolf")], owner=OWNERS[0])

    assert all("fox" in hit.snippet.text for hit in store.search("fox", owner=OWNERS[0]).hits)
