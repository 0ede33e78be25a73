"""The peers: which adapter drives each, in which environment, and what a reader should know."""

from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = Path(__file__).resolve().parent / "requirements"
ENVIRONMENTS = ROOT / ".venv-peers"


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """One column of the table.

    Attributes:
        key: names the peer in files and options.
        title: names it in tables and charts.
        adapter: the module in `benchmarks.peers.adapters`.
        variant: passed to the adapter.
        environment: the environment that it runs in; "" is Backstay's own.
        package: the distribution whose version is shown.
        about: one sentence on the measured interface.
        only: the workloads that it takes part in; empty: all.
    """

    key: str
    title: str
    adapter: str
    variant: str = "default"
    environment: str = ""
    package: str = ""
    about: str
    only: tuple[str, ...] = ()
    contends: bool = True


FLOOR = Peer(key="floor", title="floor", adapter="floor", about="Hand-written SQL, WAL and `synchronous=FULL`.")
BACKSTAY = Peer(
    key="backstay", title="Backstay", adapter="backstay_store", package="backstay", about="The verbs of `Store`."
)
PEERS = (
    BACKSTAY,
    Peer(
        key="openai_agents",
        title="OpenAI Agents SDK",
        adapter="openai_agents",
        environment="openai_agents",
        package="openai-agents",
        about="`SQLiteSession` on a file; a turn is one `add_items`.",
    ),
    Peer(
        key="langgraph",
        title="LangGraph",
        adapter="langgraph_sqlite",
        environment="langgraph",
        package="langgraph-checkpoint-sqlite",
        about="`SqliteSaver`; a turn is `get_tuple`, then one `put`, the least that one invocation of a graph does.",
    ),
    Peer(
        key="adk",
        title="Google ADK",
        adapter="adk",
        environment="adk",
        package="google-adk",
        about="`SqliteSessionService`; a turn is two `append_event`.",
    ),
    Peer(
        key="adk_database",
        title="Google ADK, database",
        adapter="adk",
        variant="database",
        environment="adk",
        package="google-adk",
        about="`DatabaseSessionService` on `sqlite+aiosqlite`; a turn is two `append_event`.",
    ),
    Peer(
        key="agno",
        title="Agno",
        adapter="agno_sqlite",
        environment="agno",
        package="agno",
        about="`SqliteDb`; a turn is one `upsert_run` (an agent also writes the session row).",
    ),
    Peer(
        key="strands",
        title="Strands",
        adapter="strands_file",
        environment="strands",
        package="strands-agents",
        about="`FileSessionManager`; a turn is two `create_message`, each a file.",
    ),
    Peer(
        key="hermes",
        title="Hermes",
        adapter="hermes",
        environment="hermes",
        package="hermes-agent",
        about="`SessionDB` with its full-text index; a turn is two `append_message`.",
    ),
    Peer(
        key="json",
        title="JSON file",
        adapter="json_file",
        about="One file per session, rewritten for each turn and renamed; hand-written, without a sync.",
    ),
    Peer(
        key="json_synced",
        title="JSON file, synced",
        adapter="json_file",
        variant="synced",
        about="The same, with a sync of the file and of its directory.",
    ),
    Peer(
        key="grouped",
        title="floor, group commit",
        adapter="floor",
        variant="grouped",
        about="The floor with 64 turns in each transaction: the upper bound of a group commit.",
        only=("crowd",),
        contends=False,
    ),
)
