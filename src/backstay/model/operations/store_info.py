"""Information about a store, for its operator."""

import msgspec


class About(msgspec.Struct, frozen=True, kw_only=True):
    """A store's engine, schema version and size.

    Attributes:
        url: The database, without its password.
        engine: "SQLite" or "PostgreSQL".
        engine_version: The version of the database library or server.
        schema: The version of the schema.
        sessions: The number of sessions.
        workers: The number of registered workers.
        search_languages: The languages whose inflections the search recognises.
    """

    url: str
    engine: str
    engine_version: str
    schema: int
    sessions: int
    workers: int
    search_languages: tuple[str, ...] = ()


class OwnerUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The storage of one owner. The bytes count text, in blocks of 16 KiB per session, and attachments."""

    sessions: int
    stored_bytes: int


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """How many turns there are, of all owners and in all processes.

    Attributes:
        running: Turns that run.
        waiting: Turns that wait, for another turn or for a process that serves their agent.
    """

    running: int = 0
    waiting: int = 0
