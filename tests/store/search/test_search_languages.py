"""Search on PostgreSQL in languages: every fact of searching holds, and other forms of a word are found too."""

import random
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from backstay import Store, open_store
from backstay.clock import Clock
from backstay.errors import ConfigError
from backstay.model import message
from backstay.model.ids import SessionId
from backstay.model.limits import Limits
from tests.contract import OpenHandle
from tests.contract.builders import ME
from tests.contract.reads.search import SearchContract

STEMS = "SELECT count(*) FROM search WHERE EXISTS (SELECT FROM unnest(tsvector_to_array(words)) w WHERE w ^@ '=')"


class TestSearchInLanguages(SearchContract):
    """All rules of search without languages also hold with some."""

    @pytest.fixture
    def open_handle(self, empty_database: str) -> OpenHandle:
        def open_handle(*, clock: Clock, lease_seconds: float, limits: Limits) -> Store:
            store = open_store(empty_database, clock=clock, lease_seconds=lease_seconds, limits=limits)
            store.set_search_languages(["german", "english"])
            return store

        return open_handle


@pytest.fixture
def store(empty_database: str) -> Iterator[Store]:
    with open_store(empty_database) as store:
        yield store


def say(store: Store, *texts: str) -> list[SessionId]:
    """Record each text in a session of its own."""
    sessions = [store.create(owner=ME).id for _ in texts]
    for session, text in zip(sessions, texts, strict=True):
        store.record(session, [message.user(text)], owner=ME)
    return sessions


def found(store: Store, query: str) -> set[str]:
    """The texts of the hits; they are short."""
    return {hit.snippet.text for hit in store.search(query, owner=ME).hits}


# --- forms ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "hits"),
    [
        ("run", {"she runs", "running late", "run!"}),
        ("runs", {"she runs", "running late", "run!"}),
        ("RUNNING", {"she runs", "running late", "run!"}),
        ('"run"', {"run!"}),
        ('"running late"', {"running late"}),
        ('"run late"', set()),
        ("run -runs", {"running late", "run!"}),
        ("run -late", {"she runs", "run!"}),
        ("runn*", {"running late"}),
        ("run late", {"running late"}),
        ("Häuser", {"ein Haus", "viele Häuser"}),
        ("haus", {"ein Haus", "viele Häuser"}),
        ("the", set()),
        ("she", {"she runs"}),
        ("english", set()),
    ],
)
def test_only_a_bare_word_finds_other_forms_not_one_quoted_excluded_or_cut_off(
    store: Store, query: str, hits: set[str]
) -> None:
    store.set_search_languages(["english", "german"])
    say(store, "she runs", "running late", "run!", "ein Haus", "viele Häuser")

    assert found(store, query) == hits


def test_the_form_that_was_found_is_marked(store: Store) -> None:
    store.set_search_languages(["english"])
    say(store, "I was running home")

    (hit,) = store.search("run", owner=ME).hits

    assert [hit.snippet.text[start:end] for start, end in hit.snippet.marks] == ["running"]


def test_a_text_too_large_for_the_index_is_found_by_other_forms_too(store: Store) -> None:
    store.set_search_languages(["english"])
    many = " ".join(f"w{number:x}" for number in range(90_000))
    (large,) = say(store, f"{many} running")

    assert [hit.session for hit in store.search("runs", owner=ME).hits] == [large]
    assert [hit.session for hit in store.search('"w15f8f running"', owner=ME).hits] == [large]
    assert found(store, "walks") == set()


# --- change ---------------------------------------------------------------------------------------------------------


def test_a_language_is_a_fact_of_the_database(store: Store, empty_database: str) -> None:
    assert store.about().search_languages == ()

    assert store.set_search_languages(["german", "english", "german"]) == ("english", "german")

    with open_store(empty_database) as other:
        assert other.about().search_languages == ("english", "german")


def test_text_from_before_a_language_is_found_in_it_after_indexing(store: Store) -> None:
    say(store, *(f"she runs {number} miles" for number in range(450)))
    store.index()
    store.set_search_languages(["english"])
    steps: list[int] = []

    assert found(store, "runs 1") == {"she runs 1 miles"}
    assert store.index(progress=steps.append) == 450

    assert steps[-1] == 450
    assert len(steps) > 2
    assert len(store.search("running mile", owner=ME, limit=1_000).hits) == 450
    assert store.index() == 0


def test_the_stems_of_a_language_that_is_given_up_are_gone_after_indexing(store: Store, empty_database: str) -> None:
    store.set_search_languages(["english"])
    say(store, "she runs", "running late")
    store.index()
    store.set_search_languages([])

    assert found(store, "runs") == {"she runs"}
    store.index()

    assert found(store, "runs") == {"she runs"}
    with psycopg.connect(empty_database) as connection:
        assert connection.execute(STEMS).fetchone() == (0,)


def test_setting_the_same_languages_again_indexes_nothing(store: Store) -> None:
    store.set_search_languages(["english"])
    say(store, "she runs")
    store.index()

    store.set_search_languages(["english"])

    assert store.index() == 0


def test_writers_do_not_wait_for_the_index(store: Store, empty_database: str) -> None:
    store.set_search_languages(["english"])
    (session,) = say(store, "she runs")
    store.index()
    with psycopg.connect(empty_database) as indexer:
        # As far as a step of indexing goes.
        indexer.execute("SELECT FROM indexed FOR UPDATE")
        indexer.execute("UPDATE search SET words = words")

        store.record(session, [message.user("he walks")], owner=ME)

    assert found(store, "walk") == {"he walks"}


def test_an_unknown_language_is_rejected_with_the_known_ones(store: Store, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="klingon") as refused:
        store.set_search_languages(["klingon"])
    assert "english" in refused.value.hint

    with open_store(tmp_path / "chat.db") as file, pytest.raises(ConfigError) as nowhere:
        file.set_search_languages(["english"])
    assert "PostgreSQL" in nowhere.value.hint


# --- scripts without spaces -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 20_000, 300_000])
def test_characters_side_by_side_are_found_in_texts_of_any_length(store: Store, length: int) -> None:
    """As pairs; in a text that has more of them than the index takes, by each character."""
    filler = "".join(random.Random(3).choices("".join(map(chr, range(0x7000, 0x9000))), k=length))
    says = say(store, f"{filler}我去了东京塔", f"{filler}京东")

    assert [hit.session for hit in store.search("东京塔", owner=ME).hits] == says[:1]
    assert [hit.session for hit in store.search("京东", owner=ME).hits] == says[1:]
    assert [hit.session for hit in store.search("了东 京塔", owner=ME).hits] == says[:1]
    assert [hit.session for hit in store.search("去了东*", owner=ME).hits] == says[:1]
    assert store.search("塔京", owner=ME).hits == ()
