"""Actions of another process on a session, as work for worker processes."""

from collections.abc import Callable

from backstay import Store, Text, open_store
from backstay.model import message
from backstay.model.ids import SessionId
from backstay.model.turn import Completed, OpenTurn, Rotated
from tests.databases import Place
from tests.runtime_processes.app_programs import CHAT, LONG
from tests.runtime_processes.turn_in_child import ME

Deed = Callable[[Store, SessionId], None]


def elsewhere(rank: int, place: Place, session: SessionId, deeds: tuple[str, ...]) -> None:
    """Run these actions, one after the other."""
    with open_store(place, lease_seconds=LONG) as store:
        for deed in deeds:
            DEEDS[deed](store, session)


def record(store: Store, session: SessionId) -> None:
    store.record(session, [message.user("by the way"), message.assistant("noted")], owner=ME)


def speak(store: Store, session: SessionId) -> None:
    _answer(store, store.submit(session, "here I am", owner=ME, start=True).opened)


def speak_and_die(store: Store, session: SessionId) -> None:
    opened = store.submit(session, "here I am", owner=ME, start=True).opened
    assert opened is not None
    store.checkpoint(opened, [Text("half an ans")])


def undo(store: Store, session: SessionId) -> None:
    store.undo(session, owner=ME)


def redo(store: Store, session: SessionId) -> None:
    store.redo(session, owner=ME)


def edit(store: Store, session: SessionId) -> None:
    (*_, last) = [said for said in store.messages(session, owner=ME).messages if said.role == "user"]
    _answer(store, store.edit(session, last.id, "otherwise", owner=ME, start=True).opened)


def retry(store: Store, session: SessionId) -> None:
    _answer(store, store.retry(session, owner=ME, start=True).opened)


def compact(store: Store, session: SessionId) -> None:
    opened = store.compact(session, owner=ME).opened
    assert opened is not None
    rotated = _rotate(store, session, opened)
    assert rotated.open is not None
    store.finish(rotated.open, Completed())


def rotate(store: Store, session: SessionId) -> None:
    _rotate(store, session, None)


def rename(store: Store, session: SessionId) -> None:
    store.rename(session, "Soup", owner=ME)


def pin(store: Store, session: SessionId) -> None:
    store.pin(session, True, owner=ME)


def draft(store: Store, session: SessionId) -> None:
    store.save_draft(session, "what ab", owner=ME)


def tag(store: Store, session: SessionId) -> None:
    store.tag(session, owner=ME, add=["kitchen"])


def mark_read(store: Store, session: SessionId) -> None:
    store.mark_read(session, 1, owner=ME)


def fork(store: Store, session: SessionId) -> None:
    record(store, store.fork(session, owner=ME).id)


def fork_and_switch(store: Store, session: SessionId) -> None:
    forked = store.fork(session, owner=ME).id
    record(store, forked)
    store.point(CHAT, forked, owner=ME)


def switch_back(store: Store, session: SessionId) -> None:
    store.point(CHAT, session, owner=ME)


def enqueue(store: Store, session: SessionId) -> None:
    store.submit(session, "and then?", owner=ME)


def cancel(store: Store, session: SessionId) -> None:
    _cancel(store, session, take=False)


def take(store: Store, session: SessionId) -> None:
    _cancel(store, session, take=True)


def _cancel(store: Store, session: SessionId, *, take: bool) -> None:
    running = store.session(session, owner=ME).running
    assert running is not None
    store.cancel(running, owner=ME, take=take)


def _answer(store: Store, opened: OpenTurn | None) -> None:
    assert opened is not None
    store.finish(opened, Completed(), bodies=[Text("hm")])


def _rotate(store: Store, session: SessionId, turn: OpenTurn | None) -> Rotated:
    here = store.session(session, owner=ME)
    said = [message.summary("so far")]
    rotated = store.rotate(session, said, owner=ME, parent=here.window, keep_from=max(1, here.length - 2), turn=turn)
    assert rotated.won
    return rotated


DEEDS: dict[str, Deed] = {
    deed.__name__: deed
    for deed in (
        record, speak, speak_and_die, undo, redo, edit, retry, compact, rotate, rename, pin, draft, tag, mark_read,
        fork, fork_and_switch, switch_back, enqueue, cancel, take,
    )
}  # fmt: skip
