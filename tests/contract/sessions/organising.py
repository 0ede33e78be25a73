"""Organising: titles, tags, pins, the archive, drafts and read marks."""

from collections.abc import Callable

import pytest

from backstay.errors import InvalidPayload, RevisionMismatch, TooLarge
from backstay.model import event
from backstay.model.ids import SessionId
from backstay.model.session import SessionFilter, SessionPatch, Ttl
from backstay.model.turn import Completed
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import ContractBase
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
    start,
    talk,
)

HOUR = 3600.0

Verb = Callable[[Store, SessionId], object]


class FilingContract(ContractBase):
    """Rules for titles, tags, pins and marks."""

    # --- organising ---------------------------------------------------------------------------------------------------

    def test_a_title_is_stored_with_its_author(self, store: Store) -> None:
        session = new_session(store)

        renamed = store.rename(session, "Dinner", owner=ME)

        assert (renamed.title, renamed.title_by) == ("Dinner", "person")
        assert store.session(session, owner=ME) == renamed
        assert bodies_of(store, session)[-1] == event.SessionRenamed("Dinner", "person")

    def test_a_persons_title_is_not_replaced_by_a_later_generated_one(self, store: Store) -> None:
        session = new_session(store)
        before = store.rename(session, "Mine", owner=ME, by="person")

        assert store.rename(session, "Generated", owner=ME, by="agent") == before
        assert store.session(session, owner=ME) == before

    def test_a_persons_title_replaces_an_earlier_generated_one(self, store: Store) -> None:
        session = new_session(store)
        store.rename(session, "Generated", owner=ME, by="agent")

        renamed = store.rename(session, "Mine", owner=ME, by="person")

        assert (renamed.title, renamed.title_by) == ("Mine", "person")

    def test_a_generated_title_replaces_a_generated_one(self, store: Store) -> None:
        session = new_session(store)
        store.rename(session, "First", owner=ME, by="agent")

        assert store.rename(session, "Second", owner=ME, by="agent").title == "Second"

    def test_a_generated_title_that_a_person_confirms_is_theirs(self, store: Store) -> None:
        session = new_session(store)
        store.rename(session, "Dinner", owner=ME, by="agent")
        store.rename(session, "Dinner", owner=ME, by="person")

        assert store.rename(session, "Supper", owner=ME, by="agent").title == "Dinner"

    def test_a_removed_title_leaves_room_for_a_generated_one(self, store: Store) -> None:
        session = new_session(store)
        store.rename(session, "Mine", owner=ME)

        removed = store.rename(session, None, owner=ME)

        assert (removed.title, removed.title_by) == (None, None)
        assert store.rename(session, "Generated", owner=ME, by="agent").title == "Generated"

    def test_organising_changes_all_given_fields_at_once(self, store: Store) -> None:
        session = new_session(store)
        store.pin(session, True, owner=ME)

        filed = store.update(session, SessionPatch(title="Dinner", archived=True, add_tags=("home",)), owner=ME)

        assert (filed.title, filed.pinned, filed.archived, filed.tags) == ("Dinner", True, True, ("home",))
        assert store.session(session, owner=ME) == filed
        assert store.update(session, SessionPatch(title=None), owner=ME).title is None

    def test_organising_that_is_rejected_in_part_changes_nothing(self, store: Store) -> None:
        session = new_session(store)
        before = look(store, session)

        with pytest.raises(TooLarge):
            store.update(session, SessionPatch(title="Dinner", add_tags=("x" * 10_000,)), owner=ME)

        assert look(store, session) == before

    def test_organising_a_changed_session_is_rejected(self, store: Store) -> None:
        session = new_session(store)
        seen = store.session(session, owner=ME).revision
        now = store.rename(session, "Theirs", owner=ME)

        with pytest.raises(RevisionMismatch):
            store.update(session, SessionPatch(title="Mine"), owner=ME, expect_revision=seen)
        assert store.update(session, SessionPatch(title="Mine"), owner=ME, expect_revision=now.revision).title == "Mine"

    @pytest.mark.parametrize("verb", ["end", "delete"])
    def test_ending_or_deleting_a_changed_session_is_rejected(self, store: Store, verb: str) -> None:
        session = new_session(store)
        seen = store.session(session, owner=ME).revision
        store.rename(session, "Theirs", owner=ME)
        before = look(store, session)

        with pytest.raises(RevisionMismatch):
            (store.end if verb == "end" else store.delete)(session, owner=ME, expect_revision=seen)

        assert look(store, session) == before

    @pytest.mark.parametrize("blank", [None, "", " \n "])
    def test_removing_a_title_that_is_not_there_writes_nothing(self, store: Store, blank: str | None) -> None:
        session = new_session(store)
        before = look(store, session)

        store.rename(session, blank, owner=ME)

        assert look(store, session) == before

    def test_tags_are_a_set_and_shown_in_order(self, store: Store) -> None:
        session = new_session(store)

        store.tag(session, owner=ME, add=["work", "home", "work"])
        tagged = store.tag(session, owner=ME, add=["garden"], remove=["home", "never there"])

        assert tagged.tags == ("garden", "work")
        assert bodies_of(store, session)[-2:] == [
            event.SessionTagged(("home", "work"), ()),
            event.SessionTagged(("garden",), ("home",)),
        ]

    def test_pinning_and_archiving_can_be_taken_back(self, store: Store) -> None:
        session = new_session(store)

        assert store.pin(session, True, owner=ME).pinned
        assert store.archive(session, True, owner=ME).archived
        assert not store.pin(session, False, owner=ME).pinned
        assert not store.archive(session, False, owner=ME).archived
        assert bodies_of(store, session)[1:] == [
            event.SessionPinned(True),
            event.SessionArchived(True),
            event.SessionPinned(False),
            event.SessionArchived(False),
        ]

    @pytest.mark.parametrize(
        "file",
        [
            lambda store, session: store.rename(session, "Dinner", owner=ME),
            lambda store, session: store.rename(session, "Dinner", owner=ME, by="agent"),
            lambda store, session: store.pin(session, True, owner=ME),
            lambda store, session: store.archive(session, True, owner=ME),
            lambda store, session: store.tag(session, owner=ME, add=["home"]),
            lambda store, session: store.point(room(), session, owner=ME),
        ],
        ids=["rename", "rename by an agent", "pin", "archive", "tag", "point"],
    )
    def test_organising_is_one_revision_and_event_and_a_repetition_writes_nothing(
        self, store: Store, clock: ManualClock, file: Verb
    ) -> None:
        before = store.create(owner=ME)
        clock.advance(HOUR)

        file(store, before.id)
        filed = look(store, before.id)
        clock.advance(HOUR)
        file(store, before.id)

        assert look(store, before.id) == filed
        after = filed.session
        assert (after.revision, after.last_event) == (before.revision + 1, before.last_event + 1)
        assert (after.context, after.activity, after.active_at) == (before.context, before.activity, before.active_at)

    # --- agents -----------------------------------------------------------------------------------------------------

    def test_a_session_is_the_agents_that_was_asked_last_in_it(self, store: Store) -> None:
        session = new_session(store)
        assert store.session(session, owner=ME).agent is None
        talk(store, session)
        agents = [store.session(session, owner=ME).agent]

        proof = start(store, session, agent="one")
        agents.append(store.session(session, owner=ME).agent)
        enqueue(store, session, agent="two")
        agents.append(store.session(session, owner=ME).agent)
        store.finish(proof, Completed())
        agents.append(store.fork(session, owner=ME).agent)

        assert agents == [None, "one", "two", "two"]

    def test_a_compaction_does_not_change_the_agent_of_a_session(self, store: Store) -> None:
        session = run(store, room()).turn.session

        assert store.compact(session, owner=ME).opened is not None

        assert store.session(session, owner=ME).agent == AGENT

    def test_a_list_shows_the_sessions_of_one_agent_page_by_page(self, store: Store, clock: ManualClock) -> None:
        made = []
        for number in range(7):
            clock.advance(HOUR)
            made.append(start(store, room(f"room {number}"), agent="odd" if number % 2 else "even").session)
        new_session(store)
        wanted, after, pages = SessionFilter(agent="even"), None, []
        for _ in range(2):
            page = store.list(owner=ME, filter=wanted, after=after, limit=2)
            pages.append([session.id for session in page.sessions])
            after = page.next

        assert pages == [[made[6], made[4]], [made[2], made[0]]]
        assert after is None
        assert store.list(owner=STRANGER, filter=wanted).sessions == ()
        assert store.list(owner=ME, filter=SessionFilter(agent="nobody")).sessions == ()
        both = SessionFilter(agent="odd", place="matrix", family="chat")
        assert [session.id for session in store.list(owner=ME, filter=both).sessions] == [made[5], made[3], made[1]]

    # --- marks ------------------------------------------------------------------------------------------------------

    def test_a_new_session_has_no_marks(self, store: Store) -> None:
        marks = store.marks(new_session(store), owner=ME)

        assert (marks.draft, marks.read_to) == ("", 0)

    def test_a_draft_is_kept_for_every_handle(self, store: Store, other: Store) -> None:
        session = new_session(store)

        saved = store.save_draft(session, "Dear kit", owner=ME)

        assert saved.draft == "Dear kit"
        assert other.marks(session, owner=ME) == saved

    def test_an_empty_draft_counts_as_no_draft(self, store: Store) -> None:
        session = new_session(store)
        store.save_draft(session, "Dear kit", owner=ME)

        assert store.save_draft(session, "", owner=ME).draft == ""

    def test_a_read_mark_only_moves_forward(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)

        marks = [store.mark_read(session, number, owner=ME).read_to for number in (2, 4, 3, 0)]

        assert marks == [2, 4, 4, 4]

    @pytest.mark.parametrize("beyond", [-1, 3, 2**70])
    def test_a_read_mark_stays_within_the_events(self, store: Store, beyond: int) -> None:
        session = new_session(store)
        talk(store, session)
        store.mark_read(session, 1, owner=ME)

        with refused(store, session, InvalidPayload):
            store.mark_read(session, beyond, owner=ME)

    def test_drafts_and_read_marks_disturb_nothing_and_each_other_neither(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        before = look(store, session)

        store.save_draft(session, "Dear kit", owner=ME)
        marks = store.mark_read(session, 2, owner=ME)

        assert (marks.draft, marks.read_to) == ("Dear kit", 2)
        after = look(store, session)
        assert (after.session, after.events) == (before.session, before.events)

    @pytest.mark.parametrize("close", ["end", "expire"])
    def test_a_closed_session_can_still_be_read_to_its_end(self, store: Store, clock: ManualClock, close: str) -> None:
        session = store.create(owner=ME, ttl=Ttl(idle=HOUR)).id
        talk(store, session)
        store.save_draft(session, "Dear kit", owner=ME)
        if close == "end":
            store.end(session, owner=ME)
        clock.advance(HOUR)

        assert store.mark_read(session, 2, owner=ME).read_to == 2
        assert store.marks(session, owner=ME).draft == "Dear kit"
