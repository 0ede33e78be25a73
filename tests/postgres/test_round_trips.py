"""The round trips of every operation: how often a caller waits for the server."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from backstay import Store, Text, ToolCall, ToolResult, open_store
from backstay.errors import StoreError
from backstay.model import message as m
from backstay.model.event import START
from backstay.model.ids import SessionId
from backstay.model.limits import Limits
from backstay.model.turn import Completed, OpenTurn
from backstay.store.engine import Row, Transaction
from backstay.store.postgres.engine import PostgresEngine
from benchmarks.postgres.postgres_traffic import Traffic, counting
from tests.postgres_servers.postgres import Postgres, at

ME = "me"
SAID = [m.user("question"), m.assistant("answer")]


class Scene:
    """A store whose traffic is counted, a session in it, and a turn that runs in another session."""

    def __init__(self, store: Store, traffic: Callable[[], Traffic]) -> None:
        self.store, self._traffic = store, traffic
        self.session = store.create(owner=ME).id
        self.busy = store.create(owner=ME).id
        self.turn = self.started(self.busy)
        self.named = 0

    def started(self, session: SessionId) -> OpenTurn:
        opened = self.store.submit(session, "question", owner=ME, start=True).opened
        assert opened is not None
        return opened

    def checkpoint(self, *bodies: Text | ToolCall | ToolResult) -> None:
        self.turn = self.store.checkpoint(self.turn, bodies).open

    def next_name(self) -> str:
        self.named += 1
        return f"name {self.named}"

    def record_new(self) -> None:
        self.store.record(self.session, SAID, owner=ME, request_id=self.next_name())

    def record_again(self) -> None:
        self.store.record(self.session, SAID, owner=ME, request_id="once")

    def trips(self, act: Callable[["Scene"], object]) -> int:
        before = self._traffic()
        act(self)
        return self._traffic().since(before).round_trips


@pytest.fixture
def scene(name: str, server_port: int, tmp_path: Path) -> Iterator[Scene]:
    with counting(tmp_path, name) as traffic, open_store(at(server_port, name)) as store:
        yield Scene(store, traffic)


# A write takes at least two: the server must have marked the transaction before it can get the COMMIT.
# A read of one statement takes one; a read of several ends with a COMMIT.
OPERATIONS: dict[str, tuple[int, Callable[[Scene], object]]] = {
    "record": (2, lambda scene: scene.store.record(scene.session, SAID, owner=ME)),
    "record with a request id": (2, Scene.record_new),
    "record a request again": (2, Scene.record_again),
    "submit behind a running turn": (2, lambda scene: scene.store.submit(scene.busy, "and then?", owner=ME)),
    "checkpoint of text": (2, lambda scene: scene.checkpoint(Text("word"))),
    "checkpoint of many texts": (2, lambda scene: scene.checkpoint(*[Text("word")] * 20)),
    "checkpoint of a tool call": (2, lambda scene: scene.checkpoint(ToolCall(scene.next_name(), "look_up", {}))),
    "renew": (2, lambda scene: scene.store.renew(scene.turn)),
    "rename": (4, lambda scene: scene.store.rename(scene.session, scene.next_name(), owner=ME)),
    "pin": (2, lambda scene: scene.store.pin(scene.session, True, owner=ME)),
    "create": (3, lambda scene: scene.store.create(owner=ME)),
    "fork": (15, lambda scene: scene.store.fork(scene.session, owner=ME)),
    "read a session": (2, lambda scene: scene.store.session(scene.session, owner=ME)),
    "list sessions": (1, lambda scene: scene.store.list(owner=ME)),
    "read messages": (5, lambda scene: scene.store.messages(scene.session, owner=ME)),
    "read events": (4, lambda scene: scene.store.events_after(scene.session, START, owner=ME)),
    "poll the version": (1, lambda scene: scene.store.version()),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_takes_no_more_than_its_round_trips(scene: Scene, operation: str) -> None:
    most, act = OPERATIONS[operation]
    act(scene)  # The first time it may connect, register the worker, or be the first with its request id.

    assert scene.trips(act) <= most


def test_a_turn_of_an_agent_takes_two_round_trips_to_start_and_two_to_end(scene: Scene) -> None:
    scene.store.finish(scene.started(scene.session), Completed())
    opened: list[OpenTurn] = []

    assert scene.trips(lambda scene: opened.append(scene.started(scene.session))) == 2
    assert scene.trips(lambda scene: scene.store.finish(opened[0], Completed())) == 2


def test_a_failed_statement_undoes_the_commit_that_was_sent_with_it(
    postgres: Postgres, name: str, scene: Scene
) -> None:
    postgres.query("ALTER TABLE events ADD CHECK (kind <> 'turn_recorded') NOT VALID", database=name)
    before = scene.store.session(scene.session, owner=ME)

    with pytest.raises(StoreError):
        scene.store.record(scene.session, SAID, owner=ME)

    assert scene.store.session(scene.session, owner=ME) == before
    assert scene.store.messages(scene.session, owner=ME).messages == ()
    assert scene.store.rename(scene.session, "still usable", owner=ME).title == "still usable"


def test_a_read_that_was_announced_sees_the_writes_before_it(postgres: Postgres, name: str) -> None:
    engine = PostgresEngine(postgres.url(name), clock=None, limits=Limits(), lease_seconds=30, wait_seconds=10)

    def look_twice(tx: Transaction) -> tuple[Row | None, Row | None]:
        tx.expect("served_agent", name="writer")
        tx.expect("served_agent", name="reader")
        assert tx.all("served_agents") == []
        unserved = tx.one("served_agent", name="reader")
        tx.run("add_served_agent", name="writer", now=1)
        return unserved, tx.one("served_agent", name="writer")

    with closing(engine):
        unserved, served = engine.write(look_twice)

    assert unserved is None
    assert served is not None
