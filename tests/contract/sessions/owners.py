"""Owners and ids: data of another owner, missing data and invalid ids are equally not found."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import msgspec
import pytest

from backstay.clock import Clock
from backstay.errors import BackstayError, InvalidPayload, LeaseLost, NotFound
from backstay.model import message
from backstay.model.content import Attachment, Text, ToolCall
from backstay.model.ids import IdSource, MessageId, SessionId, TurnId, UploadId, WindowId
from backstay.model.session import SessionPatch
from backstay.model.turn import Completed, OpenTurn
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import ContractBase
from tests.contract.builders import (
    AGENT,
    ME,
    STRANGER,
    Seen,
    answer_of,
    enqueue,
    look,
    new_session,
    room,
    said_in,
    say,
    start,
    talk,
)

BYTES = b"a picture of tea"


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """One name of each kind that a verb can be given."""

    session: SessionId
    turn: TurnId
    waiting: TurnId
    message: MessageId
    window: WindowId
    upload: UploadId
    blob: str


class BusyAndIdle(msgspec.Struct, frozen=True, kw_only=True):
    """A session in which everything is going on, and an idle one."""

    busy: Names
    idle: Names
    proof: OpenTurn


Verb = Callable[[Store, Names, str], object]

# Every verb that takes an id, called as this owner.
VERBS: dict[str, Verb] = {
    "rename": lambda store, it, owner: store.rename(it.session, "Dinner", owner=owner),
    "pin": lambda store, it, owner: store.pin(it.session, True, owner=owner),
    "unpin": lambda store, it, owner: store.pin(it.session, False, owner=owner),
    "archive": lambda store, it, owner: store.archive(it.session, True, owner=owner),
    "tag": lambda store, it, owner: store.tag(it.session, owner=owner, add=["home"]),
    "tag nothing": lambda store, it, owner: store.tag(it.session, owner=owner),
    "point": lambda store, it, owner: store.point(room("elsewhere"), it.session, owner=owner),
    "update": lambda store, it, owner: store.update(it.session, SessionPatch(title="Dinner"), owner=owner),
    "update nothing": lambda store, it, owner: store.update(it.session, SessionPatch(), owner=owner),
    "end": lambda store, it, owner: store.end(it.session, owner=owner),
    "delete": lambda store, it, owner: store.delete(it.session, owner=owner),
    "submit": lambda store, it, owner: store.submit(it.session, "hello", owner=owner),
    "submit and start": lambda store, it, owner: store.submit(it.session, "hello", owner=owner, start=True),
    "submit to a fork": lambda store, it, owner: store.submit(it.session, "hello", owner=owner, if_busy="fork"),
    "submit a request": lambda store, it, owner: store.submit(it.session, "hello", owner=owner, request_id="r1"),
    "steer": lambda store, it, owner: store.submit(it.session, "hello", owner=owner, if_busy="steer"),
    "record": lambda store, it, owner: store.record(it.session, [message.user("hello")], owner=owner),
    "claim": lambda store, it, owner: store.claim([AGENT], session=it.session, owner=owner),
    "cancel": lambda store, it, owner: store.cancel(it.turn, owner=owner),
    "cancel and take": lambda store, it, owner: store.cancel(it.turn, owner=owner, take=True),
    "cancel what waits": lambda store, it, owner: store.cancel(it.waiting, owner=owner),
    "edit_waiting": lambda store, it, owner: store.edit_waiting(it.waiting, "else", owner=owner),
    "withdraw": lambda store, it, owner: store.withdraw(it.waiting, owner=owner),
    "reorder": lambda store, it, owner: store.reorder(it.session, [it.waiting], owner=owner),
    "approve": lambda store, it, owner: store.approve(it.turn, "c1", owner=owner),
    "approve to run again": lambda store, it, owner: store.approve(it.turn, "c1", owner=owner, run_again=True),
    "deny": lambda store, it, owner: store.deny(it.turn, "c1", owner=owner),
    "resume": lambda store, it, owner: store.resume(it.turn, owner=owner),
    "undo": lambda store, it, owner: store.undo(it.session, owner=owner),
    "redo": lambda store, it, owner: store.redo(it.session, owner=owner),
    "retry": lambda store, it, owner: store.retry(it.session, owner=owner, agent=AGENT),
    "edit": lambda store, it, owner: store.edit(it.session, it.message, "else", owner=owner, agent=AGENT),
    "fork": lambda store, it, owner: store.fork(it.session, owner=owner),
    "fork at": lambda store, it, owner: store.fork(it.session, owner=owner, at=it.message),
    "rotate": lambda store, it, owner: store.rotate(
        it.session, [message.summary("so far")], owner=owner, parent=it.window, keep_from=1
    ),
    "marks": lambda store, it, owner: store.marks(it.session, owner=owner),
    "save_draft": lambda store, it, owner: store.save_draft(it.session, "unfinished", owner=owner),
    "mark_read": lambda store, it, owner: store.mark_read(it.session, 1, owner=owner),
    "upload_chunk": lambda store, it, owner: store.upload_chunk(it.upload, 0, b"more", owner=owner),
    "finish_upload": lambda store, it, owner: store.finish_upload(it.upload, owner=owner),
    "blob": lambda store, it, owner: store.blob(it.blob, owner=owner),
    "read_blob": lambda store, it, owner: store.read_blob(it.blob, owner=owner),
    "session": lambda store, it, owner: store.session(it.session, owner=owner),
    "revision": lambda store, it, owner: store.revision(it.session, owner=owner),
    "messages": lambda store, it, owner: store.messages(it.session, owner=owner),
    "messages of a window": lambda store, it, owner: store.messages(it.session, owner=owner, window=it.window),
    "lineage": lambda store, it, owner: store.lineage(it.session, owner=owner),
    "turn": lambda store, it, owner: store.turn(it.turn, owner=owner),
    "last_turn": lambda store, it, owner: store.last_turn(it.session, owner=owner),
    "waiting": lambda store, it, owner: store.waiting(it.session, owner=owner),
    "calls": lambda store, it, owner: store.calls(it.turn, owner=owner),
    "ledger": lambda store, it, owner: store.ledger(it.turn, owner=owner),
    "addresses": lambda store, it, owner: store.addresses(it.session, owner=owner),
    "events_after": lambda store, it, owner: store.events_after(it.session, owner=owner),
    "search": lambda store, it, owner: store.search("question", owner=owner, session=it.session),
    "export": lambda store, it, owner: store.export(it.session, owner=owner),
}

# Verbs to which no session means every session.
ANYWHERE = {"claim", "search"}

# Verbs that take an id within a session of their own.
WITHIN: dict[str, Callable[[Store, SessionId, Names], object]] = {
    "edit": lambda store, mine, it: store.edit(mine, it.message, "else", owner=STRANGER, agent=AGENT),
    "fork": lambda store, mine, it: store.fork(mine, owner=STRANGER, at=it.message),
    "messages": lambda store, mine, it: store.messages(mine, owner=STRANGER, window=it.window),
    "submit": lambda store, mine, it: store.submit(mine, _picture(it), owner=STRANGER),
    "record": lambda store, mine, it: store.record(mine, [message.user(_picture(it))], owner=STRANGER),
}

# Near misses of ids. Each is a mistake that callers make.
MALFORMED: dict[str, Callable[[str], Any]] = {
    "empty": lambda _: "",
    "a prefix": lambda real: real[:4],
    "without a prefix": lambda real: real[4:],
    "another prefix": lambda real: "xyz" + real[3:],
    "capitals": lambda real: real.upper(),
    "too short": lambda real: real[:-1],
    "too long": lambda real: real + "0",
    "far too long": lambda real: real * 10_000,
    "space in front": lambda real: " " + real,
    "a line end behind": lambda real: real + "\n",
    "NUL behind": lambda real: real + "\0",
    "a letter that is not in the alphabet": lambda real: real[:-1] + "u",
    "a letter of another script": lambda real: real[:-1] + "٣",
    "a lone surrogate": lambda real: real[:-1] + "\ud800",
    "a quote": lambda _: "' OR 1=1 --",
    "nothing": lambda _: None,
    "a number": lambda _: 5,
    "bytes": lambda real: real.encode(),
    "a list": lambda real: [real],
}

every_verb = pytest.mark.parametrize("verb", VERBS)


def _picture(names: Names) -> Attachment:
    return Attachment(names.blob, "tea.png", "image/png", len(BYTES))


def _unknown(clock: Clock) -> Names:
    source = IdSource(clock)
    return Names(
        session=source.session(),
        turn=source.turn(),
        waiting=source.turn(),
        message=source.message(),
        window=source.window(),
        upload=source.upload(),
        blob="0" * 64,
    )


def _upload(store: Store) -> UploadId:
    upload = store.begin_upload(owner=ME)
    store.upload_chunk(upload, 0, BYTES, owner=ME)
    return upload


def _names_in(store: Store, session: SessionId, turn: TurnId, waiting: TurnId) -> Names:
    return Names(
        session=session,
        turn=turn,
        waiting=waiting,
        message=said_in(store, session)[0].id,
        window=store.session(session, owner=ME).window,
        upload=_upload(store),
        blob=store.finish_upload(_upload(store), owner=ME).hash,
    )


def build(store: Store) -> BusyAndIdle:
    """Two sessions in which every verb can have an effect."""
    busy, idle = new_session(store), new_session(store)
    (last,) = talk(store, idle)
    talk(store, busy)
    proof = say(store, start(store, busy), ToolCall("c1", "mail", approval=True))
    waiting = enqueue(store, busy).id
    return BusyAndIdle(
        busy=_names_in(store, busy, proof.id, waiting), idle=_names_in(store, idle, last.id, waiting), proof=proof
    )


def walk(store: Store, sessions: BusyAndIdle) -> tuple[Seen, Seen, object, object]:
    """Everything there is to see in the sessions."""
    return (
        look(store, sessions.busy.session, [sessions.busy.turn, sessions.busy.waiting]),
        look(store, sessions.idle.session),
        store.blob(sessions.busy.blob, owner=ME),
        store.upload_chunk(sessions.busy.upload, 0, BYTES, owner=ME),
    )


def accepted(
    store: Store,
    names: Names,
    owner: Any,  # who asks; some ask with what is no name
    error: type[BackstayError] | tuple[type[BackstayError], ...] = NotFound,
    verbs: Iterable[str] = VERBS,
) -> dict[str, object]:
    """The verbs that were not rejected as they should be, with their results."""
    answers = {verb: answer_of(partial(VERBS[verb], store, names, owner)) for verb in verbs}
    return {verb: answer for verb, answer in answers.items() if not (isinstance(answer, error) and answer.hint)}


class EveryVerbContract(ContractBase):
    """Tests that call every verb."""

    @pytest.fixture
    def sessions(self, store: Store) -> Iterator[BusyAndIdle]:
        """Two sessions that no other caller may change."""
        sessions = build(store)
        before = walk(store, sessions)
        yield sessions
        assert walk(store, sessions) == before


class OwnerContract(EveryVerbContract):
    """Rules for the visibility of data."""

    @every_verb
    def test_data_of_another_owner_is_not_found(self, store: Store, sessions: BusyAndIdle, verb: str) -> None:
        assert accepted(store, sessions.busy, STRANGER, verbs=[verb]) == {}
        assert accepted(store, sessions.idle, STRANGER, verbs=[verb]) == {}

    def test_data_that_does_not_exist_is_not_found(
        self, store: Store, sessions: BusyAndIdle, clock: ManualClock
    ) -> None:
        assert accepted(store, _unknown(clock), ME) == {}

    @pytest.mark.parametrize("mistake", MALFORMED)
    def test_an_invalid_id_is_not_found(self, store: Store, sessions: BusyAndIdle, mistake: str) -> None:
        mangle = MALFORMED[mistake]
        names = Names(**{field: mangle(getattr(sessions.busy, field)) for field in Names.__struct_fields__})
        verbs = [verb for verb in VERBS if mistake != "nothing" or verb not in ANYWHERE]

        assert accepted(store, names, ME, verbs=verbs) == {}

    def test_an_invalid_id_is_quoted_in_part(self, store: Store, sessions: BusyAndIdle) -> None:
        mangle = MALFORMED["far too long"]
        names = Names(**{field: mangle(getattr(sessions.busy, field)) for field in Names.__struct_fields__})

        said = {verb: str(answer_of(partial(act, store, names, ME))) for verb, act in VERBS.items()}

        assert [verb for verb, words in said.items() if len(words) > 1_000] == []

    @pytest.mark.parametrize("mistake", [mistake for mistake in MALFORMED if mistake != "nothing"])
    def test_an_invalid_id_is_not_found_within_a_session(
        self, store: Store, sessions: BusyAndIdle, mistake: str
    ) -> None:
        mangle = MALFORMED[mistake]
        no_message = msgspec.structs.replace(sessions.idle, message=mangle(sessions.idle.message))
        no_window = msgspec.structs.replace(sessions.idle, window=mangle(sessions.idle.window))

        assert accepted(store, no_message, ME, verbs=["edit", "fork at"]) == {}
        assert accepted(store, no_window, ME, verbs=["messages of a window", "rotate"]) == {}

    @pytest.mark.parametrize("verb", WITHIN.values(), ids=WITHIN.keys())
    def test_messages_windows_and_blobs_of_another_owner_are_out_of_reach(
        self, store: Store, sessions: BusyAndIdle, verb: Callable[[Store, SessionId, Names], object]
    ) -> None:
        mine = new_session(store, owner=STRANGER)
        talk(store, mine, owner=STRANGER)
        before = look(store, mine, owner=STRANGER)

        with pytest.raises((NotFound, InvalidPayload)) as caught:
            verb(store, mine, sessions.idle)

        assert caught.value.hint
        assert look(store, mine, owner=STRANGER) == before

    @pytest.mark.parametrize(
        "write",
        [
            lambda store, proof: store.renew(proof),
            lambda store, proof: store.inbox(proof),
            lambda store, proof: store.checkpoint(proof, [Text("mine now")]),
            lambda store, proof: store.finish(proof, Completed()),
        ],
        ids=["renew", "inbox", "checkpoint", "finish"],
    )
    def test_a_proof_with_another_owner_is_rejected(
        self, store: Store, sessions: BusyAndIdle, write: Callable[[Store, OpenTurn], object]
    ) -> None:
        forged = msgspec.structs.replace(sessions.proof, owner=STRANGER)

        with pytest.raises(LeaseLost) as caught:
            write(store, forged)
        assert caught.value.hint

    @pytest.mark.parametrize("field", ["holder", "fence", "id"])
    def test_a_proof_is_worth_something_only_as_a_whole(
        self, store: Store, sessions: BusyAndIdle, clock: ManualClock, field: str
    ) -> None:
        source = IdSource(clock)
        wrong = {"holder": source.worker(), "fence": sessions.proof.fence + 1, "id": source.turn()}

        with pytest.raises(LeaseLost) as caught:
            store.checkpoint(msgspec.structs.replace(sessions.proof, **{field: wrong[field]}), [Text("mine now")])
        assert caught.value.hint

    def test_another_owner_sees_an_empty_store(self, store: Store, sessions: BusyAndIdle) -> None:
        store.index()

        assert store.list(owner=STRANGER).sessions == ()
        assert store.search("question", owner=STRANGER).hits == ()
        assert store.claim([AGENT], owner=STRANGER) is None
        assert store.heads([(sessions.busy.session, STRANGER), (sessions.idle.session, STRANGER)]) == {}
        assert len(store.list(owner=ME).sessions) == 2
        assert len(store.search("question", owner=ME).hits) == 2

    def test_another_owner_may_use_the_same_address_request_id_and_bytes(
        self, store: Store, sessions: BusyAndIdle
    ) -> None:
        theirs = store.submit(room(), "hello", owner=STRANGER, request_id="r1")
        mine = store.submit(room(), "hello", owner=ME, request_id="r1")
        upload = store.begin_upload(owner=STRANGER)
        store.upload_chunk(upload, 0, BYTES, owner=STRANGER)

        assert theirs.turn.id != mine.turn.id
        assert store.finish_upload(upload, owner=STRANGER).hash == sessions.busy.blob
        store.delete(mine.session.id, owner=ME)

    @pytest.mark.parametrize("almost", ["Me", "me ", " me", "m\u0435", "m%", "m_", "me\u200b"])
    def test_an_owner_is_identified_by_its_exact_name(self, store: Store, sessions: BusyAndIdle, almost: str) -> None:
        with pytest.raises(NotFound):
            store.session(sessions.idle.session, owner=almost)
        assert store.list(owner=almost).sessions == ()
