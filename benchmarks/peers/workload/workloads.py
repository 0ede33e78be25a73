"""The workloads: what is measured, on which sessions, and how often per round. Standard library only."""

from typing import NamedTuple

# The store of each peer before the first round. `recent-*` are sessions with a short history, one per round.
RECENT, RECENT_TURNS = 24, 50
MANY = 2_000
HISTORIES = {"long-1000": 500, "long-10000": 5_000, "fork": 500, "undo": 500, "steps": 50, "load": 500}
CROWD_KEY, CROWD, CROWD_TURNS = "crowd", 64, 3
CONTENDED = "contended"
NEWEST, LAST = 50, 20


class Workload(NamedTuple):
    """One row of the table: `most` limits the operations per round, so that a history stays about as long as named."""

    key: str
    title: str
    most: int
    floor: str


WORKLOADS = (
    Workload("record_100", "record a turn, history 100", 10, "one transaction: two rows, the session row, one sync"),
    Workload("record_1000", "record a turn, history 1,000", 20, "the same"),
    Workload("record_10000", "record a turn, history 10,000", 20, "the same"),
    Workload("tool_step", "checkpoint: a tool call, then its result", 20, "two transactions, two syncs"),
    Workload("delta", "checkpoint: 500 bytes of streamed text", 20, "one transaction, one sync"),
    Workload("load_1000", "load 1,000 messages", 20, "one SELECT, json.loads per row"),
    Workload("last_20", "load the last 20 of 1,000 messages", 200, "one SELECT, json.loads per row"),
    Workload("create", "create a session with its first turn", 20, "one transaction, one sync"),
    Workload("resolve", "resolve a known address", 500, "one SELECT by the name; no write"),
    Workload("newest", "list the newest 50 of 2,000 sessions", 200, "one SELECT from an index"),
    Workload("fork", "fork a session of 1,000 messages", 5, "copies the rows in one transaction, one sync"),
    Workload("undo", "undo the last of 500 turns", 20, "deletes two rows in one transaction, one sync"),
    Workload(CROWD_KEY, "64 sessions at once, record", CROWD * CROWD_TURNS, "one transaction and one sync per turn"),
)
BY_KEY = {workload.key: workload for workload in WORKLOADS}
