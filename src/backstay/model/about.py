"""What a store is, told to the person who runs it."""

import msgspec


class About(msgspec.Struct, frozen=True, kw_only=True):
    """A store's engine, schema and size, and the languages whose inflections its search knows."""

    url: str
    engine: str
    engine_version: str
    schema: int
    sessions: int
    workers: int
    search_languages: tuple[str, ...] = ()


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """How many turns run and how many wait."""

    running: int = 0
    waiting: int = 0
