"""Commands that maintain the whole store, for all owners."""

from collections.abc import Collection

from backstay.model.codec import check_name
from backstay.model.session import Forecast
from backstay.store.commands.command import Read, Write
from backstay.store.commands.input_checks import check_names
from backstay.store.engine import Transaction
from backstay.store.verbs import message_search, store_upkeep

DAY_MS = 86_400_000


def forecast(*, keep_closed_for: float | None = None, fold_older_than: float | None = None) -> Read[Forecast]:
    """Count the effects that `collect` and `fold` would have now. Changes nothing.

    Args:
        keep_closed_for: The argument for `collect`.
        fold_older_than: The argument `older_than` for `fold`.

    Returns:
        The counts.
    """
    return Read(
        name="forecast",
        owner=None,
        verb=lambda tx: store_upkeep.forecast(tx, keep_closed_for, fold_older_than, forgotten=DAY_MS),
    )


def rebuild_index() -> Write[None]:
    """Empty the search index; `index` then fills it again from the messages."""
    return Write(name="rebuild_index", owner=None, wakes=False, verb=message_search.forget)


def set_search_languages(languages: Collection[str]) -> Write[tuple[str, ...]]:
    """Set the languages whose word forms a search also finds, for all users of this database.

    A search then finds more, never less. Messages that are indexed already follow when `index` runs next, the newest
    first.

    Args:
        languages: The names of the languages. An SQLite store supports none.

    Returns:
        The new languages.

    Raises:
        ConfigError: The store does not support one of the languages.
        InvalidPayload: `languages` is not a list of names.
    """
    check_names("languages", languages)

    def set_languages(tx: Transaction) -> tuple[str, ...]:
        return message_search.set_languages(
            tx, [check_name("a language", name, tx.limits.name_bytes) for name in languages]
        )

    return Write(name="set_search_languages", owner=None, read_first=True, wakes=False, verb=set_languages)
