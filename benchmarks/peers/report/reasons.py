"""Why a peer can be ahead of Backstay, by workload; a sentence is printed only where a peer is ahead."""

_RECORD = "Backstay also writes the turn, its events and the session row that guards the lease and the fence."

WORKLOADS = {
    "record_100": _RECORD,
    "record_1000": _RECORD,
    "record_10000": _RECORD,
    "tool_step": "Backstay also checks the lease and writes the ledger of calls and the events that clients follow.",
    "delta": "Backstay writes each piece as an event that clients can follow.",
    "load_1000": "Backstay builds messages with ids, positions and typed parts.",
    "last_20": "Backstay reads the session and its lease in the same snapshot, and builds messages with ids and parts.",
    "create": "Backstay writes the session, its address, its window, the turn and the events of all of them.",
    "resolve": "Backstay also checks lease and time to live, and builds a value with every field of the session.",
    "newest": "Backstay builds a value with every field of each session; the SQL is a small part of the time.",
    "fork": "Backstay writes a session, a window and events.",
    "undo": "Backstay keeps the turn for a redo: it writes a new window and events instead of deleting rows.",
    "crowd": "Each turn of Backstay writes more rows, and its group commit runs Python for each of them.",
    "contention": "Each transaction of Backstay writes more rows while it holds the lock that all processes share.",
}
_ONE_FILE = "It reads one file."
_ONE_STAT = "It asks the file system whether a file is there."
_TWO_ITEMS = "It writes two items and the session row, without ids, events or a guard against a second writer."

# Why a peer is faster at a workload, where that is known.
PEERS = {
    ("record_100", "langgraph"): "It rewrites the whole state, which is cheap while the history is short.",
    ("record_100", "openai_agents"): _TWO_ITEMS,
    ("record_1000", "openai_agents"): _TWO_ITEMS,
    ("record_10000", "openai_agents"): _TWO_ITEMS,
    ("tool_step", "openai_agents"): "It writes items without a ledger of calls.",
    ("load_1000", "langgraph"): "It decodes one value of plain dictionaries; it rewrites that value for each turn.",
    ("load_1000", "json"): _ONE_FILE,
    ("load_1000", "json_synced"): _ONE_FILE,
    ("create", "langgraph"): "It writes one row: a thread begins with its first checkpoint.",
    ("create", "json_synced"): "It writes one new file.",
    ("resolve", "json"): _ONE_STAT,
    ("resolve", "json_synced"): _ONE_STAT,
    ("resolve", "langgraph"): "It reads the latest checkpoint of a thread, whose id is its only name.",
    (
        "contention",
        "openai_agents",
    ): "It waits for the lock of the database and appends; no writer sees the other's turn.",
}
UNSYNCED = "It does not sync: it acknowledges turns that a power loss can take back."
