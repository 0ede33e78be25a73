"""Processes die at any write of a compaction, or compact at once: one whole window remains, the old or the next."""

import asyncio
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import backstay
from backstay import Address, Compaction, Store, Text, open_store
from backstay.agents.port import AgentTurn
from backstay.errors import ContextOverflow
from backstay.model import message
from backstay.model.content import Body
from backstay.model.event import TurnEnded, WindowOpened
from backstay.model.ids import SessionId, WindowId
from backstay.model.message import Message
from backstay.model.turn import COMPACTOR, Completed, Interrupted
from tests.crash.sql_audit import audit
from tests.crash.worker_processes import WorkerProcesses, die
from tests.runtime_processes.app_programs import LONG
from tests.runtime_processes.child_pipe import Words
from tests.runtime_processes.child_process import Child
from tests.runtime_processes.kills.killing_disk import MortalDisk
from tests.runtime_processes.turn_in_child import ME

NEVER = 1 << 40
CHAT = Address.chat("matrix", "group", chat="kitchen")
TURNS = ("first", "second", "third", "fourth", "fifth")


def tokens(said: Message) -> int:
    """One word, one token."""
    return len(said.text.split())


async def gist(turn: AgentTurn) -> AsyncIterator[Body]:
    yield Text(f"gist of {len(turn.messages) - 1}")


async def talkative(turn: AgentTurn) -> AsyncIterator[Body]:
    """Answers with ten words; cannot read more than thirty."""
    if sum(map(tokens, turn.messages)) > 30:
        raise ContextOverflow("too long for me")
    yield Text(" ".join(["word"] * 10))


# After each turn that made it too long; or only when the agent cannot read it any more.
AFTER = Compaction(budget=40, threshold=0.5, keep=12, tokens=tokens, summariser=gist)
WITHIN = Compaction(budget=4000, threshold=0.5, keep=12, tokens=tokens, summariser=gist)
POLICIES = {"after": AFTER, "within": WITHIN}


@pytest.mark.parametrize("when", POLICIES)
def test_a_process_killed_at_any_write_of_a_compaction_leaves_one_whole_window(
    tmp_path: Path, auditor: WorkerProcesses, rounds: int, when: str
) -> None:
    (changes,) = [words[1] for words in _live(tmp_path / "counted" / "chat.db", NEVER, when) if words[0] == "changes"]

    for number in range(1, changes, max(1, changes // (4 * rounds))):
        path = tmp_path / f"{number}" / "chat.db"
        heard = _live(path, number, when)
        _check(path, [words[1] for words in heard if words[0] == "done"], f"killed at change {number}")
        assert auditor.all(audit, path) == [[]], f"killed at change {number}"


def _live(path: Path, number: int, when: str) -> list[Words]:
    """All reports of the process before it died."""
    path.parent.mkdir()
    with Child(talk_and_die, path, number, when) as child:
        return child.everything()


def talk_and_die(pipe: "Connection[Any, Any]", path: Path, number: int, when: str) -> None:
    """A conversation that is compacted on the way, as far as the n-th change of a file."""
    disk = MortalDisk(number, die)
    asyncio.run(_talk(pipe, path, POLICIES[when]))
    pipe.send(("changes", disk.changes))


async def _talk(pipe: "Connection[Any, Any]", path: Path, compaction: Compaction) -> None:
    async with backstay.open(path, agent=talkative, compaction=compaction, notify=False, lease_seconds=LONG) as app:
        session = await app.session(CHAT)
        for text in TURNS:
            await (await session.send(text, request_id=text)).outcome()
            pipe.send(("done", text))


def _check(path: Path, done: list[str], when: str) -> None:
    """Check that acknowledged messages exist, that every window is whole, and that the session continues."""
    with open_store(path, lease_seconds=LONG) as store:
        session = store.resolve(CHAT, owner=ME).session.id
        _check_windows(store, session, when)
        inputs = _everything_said(store, session, "user")
        assert [text for text in TURNS if text in inputs][: len(done)] == done, when
        assert len(inputs) == len(set(inputs)), when
        proof = store.submit(session, "still there?", owner=ME, start=True).opened
        assert proof is not None
        assert store.finish(proof, Completed(), bodies=[Text("yes")]).unbroken


def _check_windows(store: Store, session: SessionId, when: str) -> None:
    now = store.session(session, owner=ME)
    assert now.running is None, when
    lineage = store.lineage(session, owner=ME)
    assert now.window == lineage[-1].id, when
    parents = [window.parent for window in lineage if window.reason == "compaction"]
    assert len(parents) == len(set(parents)), when
    for window in lineage[1:]:
        assert window.summarises is not None
        assert window.summarises_until is not None
        messages = store.messages(session, owner=ME, window=window.id).messages
        parent = store.messages(session, owner=ME, window=window.summarises).messages
        kept = parent[window.summarises_until :]
        assert messages[0].role == "summary", when
        assert [said.id for said in messages[1 : 1 + len(kept)]][: window.start - 1] == [
            said.id for said in kept[: window.start - 1]
        ], when
    events = store.events_after(session, owner=ME, limit=1000).events
    assert [event.number for event in events] == list(range(1, now.last_event + 1)), when
    assert sum(isinstance(event.body, WindowOpened) for event in events) == len(lineage) - 1, when
    ended = [event for event in events if isinstance(event.body, TurnEnded)]
    assert len(ended) == len({event.turn for event in ended}), when
    outcomes = {type(event.body.outcome) for event in ended if isinstance(event.body, TurnEnded)}
    assert outcomes <= {Completed, Interrupted}, when


def _everything_said(store: Store, session: SessionId, role: str) -> list[str]:
    """The messages of all windows, each once."""
    found = {
        said.id: said.text
        for window in store.lineage(session, owner=ME)
        for said in store.messages(session, owner=ME, window=window.id).messages
        if said.role == role
    }
    return list(found.values())


# --- at once --------------------------------------------------------------------------------------------------------

ROUNDS = 200


def test_four_processes_that_compact_at_once_give_every_window_exactly_one_child(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with open_store(path, lease_seconds=LONG) as store, WorkerProcesses(4) as workers:
        session = store.create(owner=ME).id
        for number in range(4):
            store.record(session, [message.user(f"question {number}"), message.assistant("answer")], owner=ME)
        first = store.session(session, owner=ME).window

        heard = workers.all(compact_again_and_again, path, session, first, ROUNDS)

        lineage = store.lineage(session, owner=ME)
        assert [window.parent for window in lineage[1:]] == [window.id for window in lineage[:-1]]
        assert len(lineage) == ROUNDS + 1
        for windows in zip(*heard, strict=True):
            assert len({window for window, _ in windows}) == 1
            assert [won for _, won in windows].count(True) == 1
        assert workers.all(audit, path) == [[]] * 4


def compact_again_and_again(
    rank: int, path: Path, session: SessionId, parent: WindowId, rounds: int
) -> list[tuple[WindowId, bool]]:
    """Compact one window after the other, beginning with this one; returns each child, and whether it is ours."""
    found = []
    with open_store(path, lease_seconds=LONG) as store:
        for _ in range(rounds):
            length = store.messages(session, owner=ME, window=parent).length
            rotated = store.rotate(
                session, [message.summary(f"by {rank}")], owner=ME, parent=parent, keep_from=length - 2
            )
            (child,) = [one for one in store.lineage(session, owner=ME) if one.parent == parent]
            found.append((child.id, rotated.won))
            parent = child.id
    return found


def test_four_processes_that_want_to_compact_have_one_compaction_among_them(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with open_store(path, lease_seconds=LONG) as store, WorkerProcesses(4) as workers:
        session = store.create(owner=ME).id
        for number in range(4):
            store.record(session, [message.user(f"question {number}"), message.assistant("answer")], owner=ME)

        rotated = workers.all(compact_when_free, path, session, ROUNDS // 4)

        lineage = store.lineage(session, owner=ME)
        assert len(lineage) == sum(rotated) + 1 == ROUNDS + 1
        assert len({window.parent for window in lineage}) == len(lineage)
        events = store.events_after(session, owner=ME, limit=1000).events
        assert sum(isinstance(event.body, TurnEnded) for event in events) == ROUNDS
        assert store.session(session, owner=ME).turns == 4
        assert workers.all(audit, path) == [[]] * 4


def compact_when_free(rank: int, path: Path, session: SessionId, times: int) -> int:
    """Compact this often, in its own turns, whenever no other process does; returns the number of its own."""
    won = 0
    with open_store(path, lease_seconds=LONG) as store:
        while won < times:
            compacting = store.compact(session, owner=ME)
            assert compacting.turn.agent == COMPACTOR
            if compacting.opened is None:
                continue
            proof = compacting.opened
            length = store.messages(session, owner=ME).length
            said = [message.summary(f"by {rank}")]
            rotated = store.rotate(session, said, owner=ME, parent=proof.window, keep_from=length - 2, turn=proof)
            assert rotated.won
            assert rotated.open is not None
            store.finish(rotated.open, Completed())
            won += 1
    return won
