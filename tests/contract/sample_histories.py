"""Histories: one session for each way in which a conversation can have gone."""

from collections.abc import Callable

from backstay.model import message
from backstay.model.content import Attachment, Custom, Part, Text, Thought, ToolCall, ToolResult, Usage
from backstay.model.ids import SessionId
from backstay.model.message import NewMessage
from backstay.model.session import Ttl
from backstay.model.turn import Cancelled, Completed, Failed, Interrupted
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.builders import AGENT, ME, enqueue, new_session, room, run, said_in, say, start, talk

Teller = Callable[[Store, ManualClock], SessionId]

PHOTO = b"a photograph of a cat" * 9


def photo(store: Store, data: bytes = PHOTO) -> Attachment:
    """An attachment that was just uploaded."""
    upload = store.begin_upload(owner=ME)
    if data:
        store.upload_chunk(upload, 0, data, owner=ME)
    blob = store.finish_upload(upload, owner=ME)
    return Attachment(blob.hash, "cat.png", "image/png", blob.size)


def _compact(store: Store, session: SessionId, keep_from: int) -> None:
    window = store.session(session, owner=ME).window
    summary = [message.summary("what was said"), message.summary("and by whom")]
    store.rotate(session, summary, owner=ME, parent=window, keep_from=keep_from)


def nothing(store: Store, _: ManualClock) -> SessionId:
    """A session without messages."""
    return new_session(store)


def conversation(store: Store, clock: ManualClock) -> SessionId:
    """Recorded turns, and one of unusual parts."""
    session = new_session(store)
    for _ in range(3):
        clock.advance(2)
        talk(store, session)
    store.record(
        session, [message.user([Text("zero: \0"), Custom("mood", {"colours": [1, 2.5, None, True]})])], owner=ME
    )
    return session


def filed(store: Store, clock: ManualClock) -> SessionId:
    """Everything that filing can do."""
    session = store.resolve(room("hall"), owner=ME, ttl=Ttl(idle=3600, absolute=7200)).session.id
    store.point(room("stairs"), session, owner=ME)
    store.rename(session, "Über Katzen", owner=ME)
    store.pin(session, True, owner=ME)
    store.archive(session, True, owner=ME)
    store.tag(session, owner=ME, add=["home", "äpfel"])
    clock.advance(5)
    talk(store, session)
    store.save_draft(session, "not yet\nfinished", owner=ME)
    store.mark_read(session, 4, owner=ME)
    return session


def streamed(store: Store, clock: ManualClock) -> SessionId:
    """An agent that thinks, speaks, calls a tool and reports what it cost."""
    session = new_session(store)
    proof = say(store, start(store, session, "what time is it?"), Thought("A clock."), Text("One "), Text("moment."))
    proof = say(store, proof, ToolCall("c1", "clock", {"zone": "UTC"}, idempotent=True), Custom("looked", "up"))
    clock.advance(1)
    proof = say(store, proof, ToolResult("c1", {"hour": 12}), Text("Noon."))
    store.finish(proof, Completed(), bodies=[Usage(input_tokens=9, output_tokens=3, cost=0.25, model="clock-1")])
    run(store, session, "thanks", "")
    return session


def endings(store: Store, _: ManualClock) -> SessionId:
    """Every way in which a turn ends, with a call that has no result."""
    session = new_session(store)
    for outcome in (Completed(), Cancelled("asked to"), Failed("no network"), Interrupted("stopped")):
        proof = say(store, start(store, session, "pay"), Text("Paying."), ToolCall("c1", "pay", {"amount": 7}))
        store.finish(proof, outcome)
    asked = store.submit(session, "stop", owner=ME, start=True).turn
    store.cancel(asked.id, owner=ME)
    store.cancel(asked.id, owner=ME, take=True)
    return session


def approvals(store: Store, _: ManualClock) -> SessionId:
    """Calls that asked: one was allowed, one forbidden, one still waits for a person."""
    session = new_session(store)
    wishes = [ToolCall(name, "mail", {"to": name}, approval=True) for name in ("yes", "no", "later")]
    proof = say(store, start(store, session, "write"), *wishes)
    store.approve(proof.id, "yes", owner=ME)
    store.deny(proof.id, "no", owner=ME)
    store.finish(proof, Interrupted("stopped"), bodies=[ToolResult("yes", "sent")])
    return session


def resumed(store: Store, _: ManualClock) -> SessionId:
    """A turn that was interrupted twice and resumed: one call repeated under its key, others allowed to run."""
    session = new_session(store)
    mail = [ToolCall(name, "mail") for name in ("c1", "c2", "c3", "c4")]
    proof = say(store, start(store, session, "mail"), *mail, ToolResult("c1"))
    store.finish(proof, Interrupted("stopped"))
    for call in ("c3", "c4"):
        store.approve(proof.id, call, owner=ME, run_again=True)
    again = store.resume(proof.id, owner=ME)
    calls = [ToolCall("c8", "mail"), ToolCall("c9", "mail", idempotent=True)]
    again = store.checkpoint(again, calls, repeats={"c8": 2, "c9": 1}).open
    store.finish(again, Interrupted("stopped again"), bodies=[Text("hm")])
    store.finish(store.resume(again.id, owner=ME), Completed(), bodies=[Text("done")])
    return session


def undone(store: Store, _: ManualClock) -> SessionId:
    """Two turns were taken back."""
    session = new_session(store)
    talk(store, session, 4)
    store.undo(session, owner=ME)
    store.undo(session, owner=ME)
    return session


def redone(store: Store, _: ManualClock) -> SessionId:
    """Taken back and brought back, then said differently."""
    session = new_session(store)
    talk(store, session, 2)
    store.undo(session, owner=ME)
    store.redo(session, owner=ME)
    talk(store, session)
    store.undo(session, owner=ME)
    talk(store, session)
    return session


def undone_often(store: Store, _: ManualClock) -> SessionId:
    """So often that its windows have bases."""
    session = new_session(store)
    for _turn in range(66):
        talk(store, session)
        store.record(session, [message.user("no, wait")], owner=ME)
        store.undo(session, owner=ME)
    return session


def changed(store: Store, _: ManualClock) -> SessionId:
    """Retried, then edited; the edit waits."""
    session = new_session(store)
    run(store, session, "first", "one")
    run(store, session, "second", "two")
    retried = store.retry(session, owner=ME, start=True)
    assert retried.opened is not None
    store.finish(retried.opened, Completed(), bodies=[Text("another two")])
    edited = store.edit(session, said_in(store, session)[0].id, "else", owner=ME, agent=AGENT)
    assert edited.turn.state == "waiting"
    return session


def compacted(store: Store, _: ManualClock) -> SessionId:
    """Three compactions, the last one within a turn."""
    session = new_session(store)
    talk(store, session, 4)
    _compact(store, session, 5)
    talk(store, session, 2)
    _compact(store, session, 7)
    proof = say(store, start(store, session, "go on"), Text("I "))
    rotated = store.rotate(
        session, [message.summary("long")], owner=ME, parent=proof.window, keep_from=3, turn=proof
    ).open
    assert rotated is not None
    store.finish(rotated, Completed(), bodies=[Text("do.")])
    return session


def compacted_by_a_turn(store: Store, _: ManualClock) -> SessionId:
    """A cancelled compaction, then a completed one while a turn waited."""
    session = new_session(store)
    talk(store, session, 3)
    stopped = store.compact(session, owner=ME).opened
    assert stopped is not None
    store.finish(stopped, Interrupted("stopped"))
    opened = store.compact(session, owner=ME).opened
    assert opened is not None
    enqueue(store, session)
    summary = [message.summary("what was said")]
    rotated = store.rotate(session, summary, owner=ME, parent=opened.window, keep_from=4, turn=opened).open
    assert rotated is not None
    store.finish(rotated, Completed())
    return session


def undone_across_compactions(store: Store, clock: ManualClock) -> SessionId:
    """Undone past a summary."""
    session = compacted(store, clock)
    for _ in range(4):
        store.undo(session, owner=ME)
    talk(store, session)
    return session


def forked(store: Store, _: ManualClock) -> SessionId:
    """The source continued, and so did the fork, which was undone past its beginning."""
    source = new_session(store)
    talk(store, source, 3)
    store.rename(source, "Cats", owner=ME)
    fork = store.fork(source, owner=ME).id
    talk(store, source, 2)
    talk(store, fork)
    store.undo(fork, owner=ME)
    store.undo(fork, owner=ME)
    return fork


def forked_empty(store: Store, _: ManualClock) -> SessionId:
    """From a session without messages."""
    return store.fork(new_session(store), owner=ME).id


def forked_from_forks(store: Store, clock: ManualClock) -> SessionId:
    """Each at another place, one from behind a summary; what they said after that is none of the last one's."""
    first = redone(store, clock)
    talk(store, first, 3)
    second = store.fork(first, owner=ME, at=said_in(store, first)[6].id).id
    talk(store, second, 2)
    early = said_in(store, second)[4].id
    _compact(store, second, 6)
    third = store.fork(second, owner=ME, at=early).id
    talk(store, third)
    talk(store, second, 2)
    _compact(store, third, 2)
    return store.fork(third, owner=ME).id


def forked_from_bases(store: Store, clock: ManualClock) -> SessionId:
    """It reads a part of a window that reads a part of another."""
    source = undone_often(store, clock)
    fork = store.fork(source, owner=ME, at=said_in(store, source)[20].id).id
    talk(store, source)
    return store.fork(fork, owner=ME).id


def forked_from_the_deleted(store: Store, clock: ManualClock) -> SessionId:
    """It reads messages of sessions that are deleted."""
    last = forked_from_forks(store, clock)
    for one in store.list(owner=ME).sessions:
        if one.id != last:
            store.delete(one.id, owner=ME)
    return last


def steered(store: Store, _: ManualClock) -> SessionId:
    """One steering input was taken, another was not."""
    session = new_session(store)
    proof = say(store, start(store, session, "tell me a story"), Text("Once"))
    store.submit(session, [Text("shorter"), photo(store)], owner=ME, if_busy="steer")
    proof = store.checkpoint(proof, [], take_steering=True).open
    store.submit(session, "in French", owner=ME, if_busy="steer")
    store.finish(proof, Completed(), bodies=[Text(" upon a time.")])
    return session


def queued(store: Store, _: ManualClock) -> SessionId:
    """Inputs and finished messages wait, one edited, one put first; one was withdrawn."""
    session = new_session(store)
    proof = start(store, session)
    enqueue(store, session, "first")
    edited = enqueue(store, session, [Text("second"), photo(store, b"gone")], agent="critic")
    store.edit_waiting(edited.id, [Text("second, but better"), photo(store)], owner=ME)
    store.record(session, [message.user(photo(store, b"other")), message.assistant("seen")], owner=ME)
    store.withdraw(enqueue(store, session, "never mind").id, owner=ME)
    store.submit(session, "now!", owner=ME, if_busy="replace")
    store.finish(proof, Cancelled("replaced"))
    return session


def reordered(store: Store, _: ManualClock) -> SessionId:
    """Two inputs wait, and the later one was put first."""
    session = new_session(store)
    proof = start(store, session)
    waiting = [enqueue(store, session, text).id for text in ("first", "second")]
    store.reorder(session, waiting[::-1], owner=ME)
    store.finish(proof, Completed())
    return session


def requested(store: Store, _: ManualClock) -> SessionId:
    """Requests that were sent to two addresses and to the session."""
    session = store.submit(room("porch"), "hello", owner=ME, request_id="r1").session.id
    store.point(room("attic"), session, owner=ME)
    store.submit(room("attic"), "there", owner=ME, request_id="r2")
    store.submit(session, "you", owner=ME, request_id="r3")
    return session


def attached(store: Store, _: ManualClock) -> SessionId:
    """Attachments, one of them twice and one without a byte, some of them undone."""
    session = new_session(store)
    parts: list[Part] = [Text("look"), photo(store), photo(store, b"")]
    store.record(session, [message.user(parts), message.assistant("A cat.")], owner=ME)
    store.record(session, [NewMessage(role="user", parts=(photo(store),))], owner=ME)
    store.undo(session, owner=ME)
    return session


def folded(store: Store, clock: ManualClock) -> SessionId:
    """One turn as a whole, one in runs, one not at all."""
    session = streamed(store, clock)
    proof = say(store, start(store, session, "and now?"), Text("It "), Text("is "))
    store.rename(session, "Time", owner=ME)
    store.finish(proof, Completed(), bodies=[Text("one."), Text(" Or so.")])
    clock.advance(10)
    store.fold(older_than=5)
    run(store, session, "late", "indeed")
    return session


def ended(store: Store, _: ManualClock) -> SessionId:
    """While a turn ran and another waited."""
    session = store.resolve(room("cellar"), owner=ME).session.id
    say(store, start(store, session), Text("half an ans"))
    enqueue(store, session)
    store.end(session, owner=ME)
    store.mark_read(session, 2, owner=ME)
    return session


def expired(store: Store, clock: ManualClock) -> SessionId:
    """An expired session, after the expiry was noticed."""
    session = store.create(owner=ME, ttl=Ttl(idle=60)).id
    talk(store, session)
    clock.advance(120)
    store.collect()
    return session


def lapsed(store: Store, clock: ManualClock) -> SessionId:
    """An expired session, before the expiry was noticed."""
    session = store.create(owner=ME, ttl=Ttl(absolute=60)).id
    talk(store, session)
    clock.advance(120)
    return session


HISTORIES: dict[str, Teller] = {
    teller.__name__: teller
    for teller in (
        nothing,
        conversation,
        filed,
        streamed,
        endings,
        approvals,
        resumed,
        undone,
        redone,
        undone_often,
        changed,
        compacted,
        compacted_by_a_turn,
        undone_across_compactions,
        forked,
        forked_empty,
        forked_from_forks,
        forked_from_bases,
        forked_from_the_deleted,
        steered,
        queued,
        reordered,
        requested,
        attached,
        folded,
        ended,
        expired,
        lapsed,
    )
}
