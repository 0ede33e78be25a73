"""`backstay search`: search messages."""

import click

from backstay.cli.options import CommandOptions, session_options
from backstay.cli.output import safe_text, screen
from backstay.cli.session_names import SESSION, find
from backstay.model.search.results import SearchHit
from backstay.model.search.snippet import Snippet
from backstay.model.session import SessionFilter

EXAMPLES = """\b
Examples:
  backstay search invoice
  backstay search '"next week" -holiday'
  backstay search invoice --session ses_01kb --json
"""


@click.command(epilog=EXAMPLES)
@click.argument("words", nargs=-1, required=True)
@click.option("--session", type=SESSION, help="Only in this session.")
@click.option("--tag", help="Only in sessions with this tag.")
@click.option("--state", type=click.Choice(["open", "ended", "expired"]), help="Only in sessions in this state.")
@click.option(
    "--limit", type=click.IntRange(1, 1_000), default=20, show_default=True, help="The maximum number of hits."
)
@session_options
def search(
    options: CommandOptions,
    *,
    words: tuple[str, ...],
    session: str | None,
    tag: str | None,
    state: str | None,
    limit: int,
) -> None:
    """Search messages, best match first. Undone messages are not found; messages before a compaction are."""
    wanted = SessionFilter(tag=tag, state=state)  # type: ignore[arg-type]  # one of the choices above
    with options.store() as store:
        only = None if session is None else find(store, session, options.owner).id
        page = store.search(" ".join(words), owner=options.owner, filter=wanted, session=only, limit=limit)
    if options.json:
        screen.print_json(page)
        return
    for hit in page.hits:
        _show(hit)
    if not page.hits:
        screen.note("No message matches.")
    if page.lag:
        screen.note(f"{screen.counted(page.lag, 'message')} are not in the index yet.")


def _show(hit: SearchHit) -> None:
    title = f"  {safe_text.one_line(hit.title)}" if hit.title else ""
    screen.print_line(f"{hit.session}  {screen.moment(hit.at)}  {hit.role}{title}")
    screen.print_line(f"  {_marked(hit.snippet)}")


def _marked(snippet: Snippet) -> str:
    """Return the snippet with the matches highlighted, if there are colours."""
    pieces, end = [], 0
    for low, high in snippet.marks:
        pieces += [safe_text.one_line(snippet.text[end:low])]
        pieces += [screen.styled(safe_text.one_line(snippet.text[low:high]), bold=True, fg="yellow")]
        end = high
    return "".join([*pieces, safe_text.one_line(snippet.text[end:])])
