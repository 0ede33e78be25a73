"""`backstay search`: where something was said."""

import click

from backstay.cli import plain, screen
from backstay.cli.naming import SESSION, find
from backstay.cli.options import Ask, asks
from backstay.model.search import SearchHit
from backstay.model.session import SessionFilter
from backstay.model.snippet import Snippet

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
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True, help="How many at most.")
@asks
def search(
    ask: Ask, *, words: tuple[str, ...], session: str | None, tag: str | None, state: str | None, limit: int
) -> None:
    """Find messages, the best match first. What was undone is not found; what a compaction left behind is."""
    wanted = SessionFilter(tag=tag, state=state)  # type: ignore[arg-type]  # one of the choices above
    with ask.store() as store:
        only = None if session is None else find(store, session, ask.owner).id
        page = store.search(" ".join(words), owner=ask.owner, filter=wanted, session=only, limit=limit)
    if ask.json:
        screen.say_json(page)
        return
    for hit in page.hits:
        _show(hit)
    if not page.hits:
        screen.note("Nothing was said like that.")
    if page.lag:
        screen.note(f"{screen.counted(page.lag, 'message')} are not in the index yet.")


def _show(hit: SearchHit) -> None:
    title = f"  {plain.one_line(hit.title)}" if hit.title else ""
    screen.say(f"{hit.session}  {screen.moment(hit.at)}  {hit.role}{title}")
    screen.say(f"  {_marked(hit.snippet)}")


def _marked(snippet: Snippet) -> str:
    """The words that were looked for stand out, where they can."""
    pieces, end = [], 0
    for low, high in snippet.marks:
        pieces += [plain.one_line(snippet.text[end:low])]
        pieces += [screen.styled(plain.one_line(snippet.text[low:high]), bold=True, fg="yellow")]
        end = high
    return "".join([*pieces, plain.one_line(snippet.text[end:])])
