"""Search: finds text of users and agents that its owner can read now, and nothing else."""

import pytest

from backstay.errors import ConfigError, InvalidPayload, NotFound, TooLarge
from backstay.model import message
from backstay.model.content import Text, Thought, ToolCall, ToolResult
from backstay.model.ids import SessionId
from backstay.model.session import SessionFilter, Ttl
from backstay.model.turn import Completed
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import ContractBase
from tests.contract.builders import (
    ME,
    STRANGER,
    enqueue,
    look,
    new_session,
    room,
    run,
    said_in,
    say,
    start,
    talk,
)
from tests.contract.history.rotation import compact


class SearchContract(ContractBase):
    """Search finds messages of a session's current window, and those that its summaries replace."""

    # --- languages --------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("languages", [["klingon"], ["english; DROP TABLE search"], ["English"], [""]])
    def test_an_unknown_language_is_rejected_and_changes_nothing(self, store: Store, languages: list[str]) -> None:
        before = store.about().search_languages

        with pytest.raises((ConfigError, InvalidPayload)):
            store.set_search_languages(languages)

        assert store.about().search_languages == before

    def test_languages_are_a_list_and_not_one_word(self, store: Store) -> None:
        with pytest.raises(InvalidPayload, match="languages"):
            store.set_search_languages("english")

    # --- indexed text -------------------------------------------------------------------------------------------------

    def test_an_index_that_was_emptied_is_filled_again_from_the_messages(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)
        before = store.search("question", owner=ME)
        assert len(before.hits) == 3
        store.rebuild_index()

        assert store.index() == 6
        assert store.search("question", owner=ME) == before
        store.delete(session, owner=ME)
        assert store.search("question", owner=ME).hits == ()

    # --- queries ----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("fox", {"fox"}),
            ("FOX", {"fox"}),
            ("quick brown", {"fox"}),
            ("brown quick", {"fox"}),
            ('"quick brown"', {"fox"}),
            ('"brown quick"', set()),
            ("qui*", {"fox", "quiet"}),
            ('"a quiet ni"*', {"quiet"}),
            ("quick", {"fox"}),
            ("qui", set()),
            ("the", {"fox", "naive"}),
            ("the -fox", {"naive"}),
            ('the -"lazy dog"', {"naive"}),
            ("naive", {"naive"}),
            ("naïve", {"naive"}),
            ("CAFE", {"naive"}),
            ("东京", {"tokyo"}),
            ("京塔", {"tokyo"}),
            ("塔京", set()),
            ("東京", set()),
            ("さくら", {"sakura"}),
            ("서울", {"seoul"}),
            ("fox quiet", set()),
            ("AND", set()),
            ("fox OR quiet", set()),
            ("text:fox", set()),
            ("42", {"quiet"}),
        ],
    )
    def test_words_phrases_prefixes_and_exclusions_are_found_in_every_script(
        self, store: Store, query: str, found: set[str]
    ) -> None:
        said = {
            "fox": "The quick brown fox jumps over the lazy dog.",
            "quiet": "a quiet night in room 42",
            "naive": "the naïve Café",
            "tokyo": "我去了东京塔。",
            "sakura": "明日はさくらを見に行く",
            "seoul": "서울에서 만나요",
        }
        sessions = {name: _say(store, text) for name, text in said.items()}

        hits = {hit.session for hit in store.search(query, owner=ME).hits}

        assert {name for name, session in sessions.items() if session in hits} == found

    @pytest.mark.parametrize("query", ["", "   ", "-fox", "!!!", '""'])
    def test_a_search_that_names_nothing_to_find_is_refused(self, store: Store, query: str) -> None:
        with pytest.raises(InvalidPayload):
            store.search(query, owner=ME)

    def test_a_search_that_is_too_long_is_refused(self, store: Store) -> None:
        with pytest.raises(TooLarge):
            store.search("x" * 2_000, owner=ME)

    @pytest.mark.parametrize("limit", [0, 1001])
    def test_a_page_of_hits_is_bounded(self, store: Store, limit: int) -> None:
        with pytest.raises(InvalidPayload):
            store.search("fox", owner=ME, limit=limit)

    @pytest.mark.parametrize(
        "query", ['"', "fox)", "a*b", "NEAR(", "o'clock", "^fox", "{fox}", "fox: \\", "*", "- fox"]
    )
    def test_no_query_can_act_as_syntax(self, store: Store, query: str) -> None:
        _say(store, "a fox at nine o'clock")

        try:
            store.search(query, owner=ME)
        except InvalidPayload:
            assert not any(letter.isalnum() for letter in query)

    # --- hits -------------------------------------------------------------------------------------------------------

    def test_a_hit_has_its_position_and_its_role(self, store: Store) -> None:
        session = new_session(store)
        store.rename(session, "Animals", owner=ME)
        run(store, session, "What jumps?", "The fox jumps.")
        said = said_in(store, session)[1]

        (hit,) = store.search("fox", owner=ME).hits

        assert (hit.session, hit.title, hit.message, hit.turn) == (session, "Animals", said.id, said.turn)
        assert (hit.role, hit.at) == ("assistant", said.at)

    def test_a_snippet_shows_and_marks_the_found_words(self, store: Store) -> None:
        _say(store, "lorem ipsum " * 100 + "then the Fox\njumped over " + "dolor sit " * 100)

        (hit,) = store.search("fox jumped", owner=ME).hits

        marked = [hit.snippet.text[low:high] for low, high in hit.snippet.marks]
        assert marked == ["Fox", "jumped"]
        assert len(hit.snippet.text) <= 160

    def test_the_best_match_comes_first(self, store: Store) -> None:
        weak = _say(store, "a fox among many other words that have nothing to do with it at all, really nothing")
        strong = _say(store, "fox, fox and fox")

        assert [hit.session for hit in store.search("fox", owner=ME).hits] == [strong, weak]

    def test_each_message_that_matches_is_a_hit_of_its_own(self, store: Store) -> None:
        session = new_session(store)
        store.record(session, [message.user("fox"), message.assistant("fox"), message.user("fox")], owner=ME)

        hits = store.search("fox", owner=ME).hits

        assert {hit.message for hit in hits} == {said.id for said in said_in(store, session)}

    def test_the_limit_counts_hits_that_can_be_reached(self, store: Store) -> None:
        session = new_session(store)
        for _ in range(150):
            store.record(session, [message.user("fox fox fox")], owner=ME)
            store.undo(session, owner=ME)
        for number in range(3):
            store.record(session, [message.user(f"one fox and {number} other animals")], owner=ME)

        assert len(store.search("fox", owner=ME).hits) == 3
        assert len(store.search("fox", owner=ME, limit=2).hits) == 2

    def test_only_text_of_users_and_agents_is_found(self, store: Store) -> None:
        session = new_session(store)
        proof = say(store, start(store, session, "hello"), Thought("thinkingword"), Text("saidword"))
        proof = say(store, proof, ToolCall("c1", "toolword", {"argument": "argumentword"}))
        store.finish(proof, Completed(), bodies=[ToolResult("c1", "resultword")])
        compact(store, session, keep_from=1, summary="summaryword")

        words = "hello saidword thinkingword toolword argumentword resultword summaryword".split()
        found = [word for word in words if store.search(word, owner=ME).hits]

        assert found == ["hello", "saidword"]

    def test_the_input_of_a_waiting_turn_is_found_once_it_runs(self, store: Store) -> None:
        session = new_session(store)
        enqueue(store, session, "a patient fox")
        waiting = store.search("fox", owner=ME).hits

        store.claim(["default"])

        assert waiting == ()
        assert len(store.search("fox", owner=ME).hits) == 1

    def test_a_search_changes_nothing_in_the_sessions(self, store: Store) -> None:
        session = _say(store, "fox")
        before = look(store, session)

        store.search("fox", owner=ME)

        assert look(store, session) == before

    # --- reachable messages -----------------------------------------------------------------------------------------

    def test_undone_text_is_never_found(self, store: Store) -> None:
        session = _say(store, "a shy fox")
        store.index()

        store.undo(session, owner=ME)

        assert store.search("fox", owner=ME).hits == ()

    def test_redone_text_is_found_again(self, store: Store) -> None:
        session = _say(store, "a shy fox")
        store.index()
        store.undo(session, owner=ME)

        store.redo(session, owner=ME)

        assert [hit.session for hit in store.search("fox", owner=ME).hits] == [session]

    def test_text_that_was_edited_away_is_never_found(self, store: Store) -> None:
        session = new_session(store)
        run(store, session, "a red fox", "yes, a fox")

        store.edit(session, said_in(store, session)[0].id, "a red cat", owner=ME, start=True)

        assert store.search("fox", owner=ME).hits == ()
        assert len(store.search("cat", owner=ME).hits) == 1

    def test_an_answer_that_was_tried_again_is_never_found(self, store: Store) -> None:
        session = new_session(store)
        run(store, session, "which animal?", "a fox")

        store.retry(session, owner=ME, start=True)

        assert store.search("fox", owner=ME).hits == ()
        assert len(store.search("animal", owner=ME).hits) == 1

    def test_compacted_text_is_found(self, store: Store) -> None:
        session = _say(store, "a fox of long ago")
        for _ in range(3):
            talk(store, session)
            compact(store, session, keep_from=store.session(session, owner=ME).length)

        assert [hit.session for hit in store.search("fox", owner=ME).hits] == [session]

    def test_text_that_was_kept_through_a_compaction_is_found_once(self, store: Store) -> None:
        session = _say(store, "a fox")
        store.record(session, [message.user("another fox")], owner=ME)

        compact(store, session, keep_from=1)

        assert len(store.search("fox", owner=ME).hits) == 2

    def test_text_that_was_undone_before_a_compaction_is_never_found(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        store.record(session, [message.user("a fox")], owner=ME)
        store.undo(session, owner=ME)

        compact(store, session, keep_from=1)

        assert store.search("fox", owner=ME).hits == ()

    def test_text_that_an_undo_across_a_compaction_took_back_is_never_found(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        store.record(session, [message.user("a fox")], owner=ME)
        compact(store, session, keep_from=3)

        store.undo(session, owner=ME)

        assert store.search("fox", owner=ME).hits == ()
        assert len(store.search("question", owner=ME).hits) == 1

    def test_text_in_a_window_of_many_segments_is_found_unless_it_was_undone(self, store: Store) -> None:
        session = new_session(store)
        for number in range(70):
            store.record(session, [message.user(f"kept{number}")], owner=ME)
            store.record(session, [message.user(f"undone{number}")], owner=ME)
            store.undo(session, owner=ME)
        compact(store, session, keep_from=60)

        assert len(store.search("kept*", owner=ME, limit=100).hits) == 70
        assert store.search("undone*", owner=ME).hits == ()

    def test_shared_text_is_found_once_in_its_original_session(self, store: Store) -> None:
        session = _say(store, "a fox")
        store.fork(session, owner=ME)

        assert [hit.session for hit in store.search("fox", owner=ME).hits] == [session]

    def test_text_that_only_a_fork_still_reads_is_found_in_the_fork(self, store: Store) -> None:
        session = _say(store, "a fox")
        fork = store.fork(session, owner=ME).id

        store.undo(session, owner=ME)

        assert [hit.session for hit in store.search("fox", owner=ME).hits] == [fork]

    def test_text_that_a_fork_left_out_is_not_found_in_it(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        store.record(session, [message.user("a fox")], owner=ME)
        fork = store.fork(session, owner=ME, at=said_in(store, session)[1].id).id

        assert store.search("fox", owner=ME, session=fork).hits == ()
        assert len(store.search("question", owner=ME, session=fork).hits) == 1

    def test_text_of_a_fork_is_not_found_in_its_source(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        fork = store.fork(session, owner=ME).id
        store.record(fork, [message.user("a fox")], owner=ME)

        assert store.search("fox", owner=ME, session=session).hits == ()
        assert [hit.session for hit in store.search("fox", owner=ME).hits] == [fork]

    def test_other_owners_text_is_never_found(self, store: Store) -> None:
        theirs = new_session(store, owner=STRANGER)
        store.record(theirs, [message.user("a secret fox")], owner=STRANGER)

        assert store.search("fox", owner=ME).hits == ()
        assert [hit.session for hit in store.search("fox", owner=STRANGER).hits] == [theirs]

    def test_text_of_ended_and_expired_sessions_is_found(self, store: Store, clock: ManualClock) -> None:
        ended = _say(store, "a tired fox")
        store.end(ended, owner=ME)
        expired = store.create(owner=ME, ttl=Ttl(idle=1)).id
        store.record(expired, [message.user("a late fox")], owner=ME)
        clock.advance(2)
        store.collect()

        assert {hit.session for hit in store.search("fox", owner=ME).hits} == {ended, expired}

    # --- deleted ----------------------------------------------------------------------------------------------------

    def test_deleted_text_is_gone(self, store: Store) -> None:
        session, other = _say(store, "a fox"), _say(store, "another fox")
        store.index()

        store.delete(session, owner=ME)

        assert [hit.session for hit in store.search("fox", owner=ME).hits] == [other]

    def test_text_written_after_a_deletion_is_found_only_by_its_own_words(self, store: Store) -> None:
        session = _say(store, "a fox")
        store.index()
        store.delete(session, owner=ME)

        later = _say(store, "a cat")

        assert store.search("fox", owner=ME).hits == ()
        assert [hit.session for hit in store.search("cat", owner=ME).hits] == [later]

    def test_text_that_was_deleted_before_it_was_indexed_is_gone(self, store: Store) -> None:
        first = _say(store, "a fox")
        store.index()
        session = _say(store, "another fox")

        store.delete(session, owner=ME)
        last = _say(store, "the last fox")

        assert {hit.session for hit in store.search("fox", owner=ME).hits} == {first, last}

    def test_text_that_a_fork_keeps_of_a_deleted_session_is_found_in_the_fork(self, store: Store) -> None:
        session = new_session(store)
        store.record(session, [message.user("a fox")], owner=ME)
        fork = store.fork(session, owner=ME).id
        store.record(session, [message.user("a cat")], owner=ME)
        store.index()

        store.delete(session, owner=ME)

        assert [hit.session for hit in store.search("fox", owner=ME).hits] == [fork]
        assert store.search("cat", owner=ME).hits == ()

    # --- narrowed ---------------------------------------------------------------------------------------------------

    def test_a_search_can_be_narrowed_to_one_session(self, store: Store) -> None:
        first, second = _say(store, "a fox"), _say(store, "another fox")

        hits = [store.search("fox", owner=ME, session=session).hits for session in (first, second)]

        assert [[hit.session for hit in found] for found in hits] == [[first], [second]]

    def test_shared_text_is_found_in_the_fork_that_was_asked_for(self, store: Store) -> None:
        session = _say(store, "a fox")
        fork = store.fork(session, owner=ME).id

        assert [hit.session for hit in store.search("fox", owner=ME, session=fork).hits] == [fork]

    def test_a_search_in_another_owners_session_is_not_found(self, store: Store) -> None:
        session = _say(store, "a fox")

        with pytest.raises(NotFound):
            store.search("fox", owner=STRANGER, session=session)

    def test_a_search_in_a_deleted_session_is_not_found(self, store: Store) -> None:
        session = _say(store, "a fox")
        store.delete(session, owner=ME)

        with pytest.raises(NotFound):
            store.search("fox", owner=ME, session=session)

    @pytest.mark.parametrize(
        ("filter", "found"),
        [
            (SessionFilter(), {"plain", "pinned", "archived", "tagged", "asked", "ended"}),
            (SessionFilter(pinned=True), {"pinned"}),
            (SessionFilter(archived=False), {"plain", "pinned", "tagged", "asked", "ended"}),
            (SessionFilter(tag="food"), {"tagged"}),
            (SessionFilter(agent="cook"), {"asked"}),
            (SessionFilter(state="ended"), {"ended"}),
            (SessionFilter(state="open"), {"plain", "pinned", "archived", "tagged", "asked"}),
            (SessionFilter(family="workspace"), set()),
            (SessionFilter(family="chat", place="matrix", pinned=True), {"pinned"}),
        ],
    )
    def test_a_search_is_filtered_like_a_list(self, store: Store, filter: SessionFilter, found: set[str]) -> None:
        names = ("plain", "pinned", "archived", "tagged", "asked", "ended")
        sessions = {name: store.resolve(room(name), owner=ME).session.id for name in names}
        for session in sessions.values():
            store.record(session, [message.user("a fox")], owner=ME)
        store.pin(sessions["pinned"], True, owner=ME)
        store.archive(sessions["archived"], True, owner=ME)
        store.tag(sessions["tagged"], owner=ME, add=["food"])
        store.submit(sessions["asked"], "hello", owner=ME, agent="cook")
        store.end(sessions["ended"], owner=ME)

        hits = {hit.session for hit in store.search("fox", owner=ME, filter=filter).hits}

        assert {name for name, session in sessions.items() if session in hits} == found

    def test_shared_text_is_found_in_a_fork_that_passes_where_its_source_does_not(self, store: Store) -> None:
        session = _say(store, "a fox")
        fork = store.fork(session, owner=ME).id
        store.pin(fork, True, owner=ME)

        assert [hit.session for hit in store.search("fox", owner=ME, filter=SessionFilter(pinned=True)).hits] == [fork]

    # --- the index --------------------------------------------------------------------------------------------------

    def test_new_text_is_found_without_explicit_indexing(self, store: Store, other: Store) -> None:
        session = _say(other, "a fox")

        page = store.search("fox", owner=ME)

        assert [hit.session for hit in page.hits] == [session]
        assert page.lag == 0

    def test_indexing_returns_the_number_of_messages(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)

        assert (store.index(), store.index()) == (6, 0)

    def test_messages_missed_by_a_search_with_a_long_backlog_are_found_after_indexing(self, store: Store) -> None:
        session = new_session(store)
        said = [message.user(f"number {number}") for number in range(1_000)]
        for _ in range(3):
            store.record(session, said, owner=ME)
        store.record(session, [message.user("a fox")], owner=ME)

        behind = store.search("fox", owner=ME)
        store.index()
        caught_up = store.search("fox", owner=ME)

        assert bool(behind.hits) == (behind.lag == 0)
        assert (len(caught_up.hits), caught_up.lag) == (1, 0)

    def test_indexing_reports_its_progress(self, store: Store) -> None:
        session = new_session(store)
        store.record(session, [message.user("fox") for _ in range(500)], owner=ME)
        bodies_of: list[int] = []

        read = store.index(progress=bodies_of.append)

        assert read == bodies_of[-1] == 500
        assert bodies_of == sorted(bodies_of)


def _say(store: Store, text: str) -> SessionId:
    """A new session with this message."""
    session = new_session(store)
    store.record(session, [message.user(text)], owner=ME)
    return session
