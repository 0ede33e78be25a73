"""The reference pages of the documentation, written from what the program declares: `make reference`."""

from collections.abc import Callable, Mapping

from reference import cli, errors, events, http, library, settings

PAGES: Mapping[str, Callable[[], str]] = {
    "cli.md": cli.page,
    "errors.md": errors.page,
    "events.md": events.page,
    "http.md": http.page,
    "library.md": library.page,
    "settings.md": settings.page,
}
