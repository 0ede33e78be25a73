"""A session as a document to read: Markdown, or one HTML file that is safe to open and loads nothing."""

from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby

from backstay.cli.output import conversation_text, safe_text, screen
from backstay.model.content import Attachment, Custom, Part, Text, Thought, ToolCall, ToolResult
from backstay.model.documents.records import Header
from backstay.model.message import Message

# The page may not load, run or send anything; only its own style sheet is allowed.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
header { border-bottom: 1px solid #8886; margin-bottom: 1rem; }
article { margin: 1rem 0; padding: .5rem 1rem; border-left: .25rem solid #8886; }
article.user { border-color: #2a7; } article.assistant { border-color: #27a; } article.summary { border-color: #a72; }
h2 { font-size: .8rem; margin: 0; opacity: .7; font-weight: 600; }
.said { white-space: pre-wrap; overflow-wrap: anywhere; margin: .25rem 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .85rem; opacity: .85; }
dl { display: grid; grid-template-columns: max-content auto; gap: 0 1rem; } dd { margin: 0; }
"""


def markdown(header: Header, messages: Iterable[Message]) -> Iterator[str]:
    """Yield the conversation as Markdown: messages as they were written, tool calls in code blocks."""
    yield f"# {_heading(header)}\n\n"
    yield from (f"- {name}: {safe_text.one_line(fact)}\n" for name, fact in _facts(header))
    for message in messages:
        yield f"\n## {conversation_text.author(message)}, {screen.moment(message.at)}\n\n"
        yield "\n\n".join(_as_markdown(part) for part in conversation_text.shown_parts(message)) + "\n"


def html(header: Header, messages: Iterable[Message]) -> Iterator[str]:
    """Yield the conversation as one HTML file. All stored text is escaped, and no other file is needed."""
    facts = "".join(
        f"<dt>{escape(name)}</dt><dd>{_safe(safe_text.one_line(fact))}</dd>" for name, fact in _facts(header)
    )
    title = _safe(_heading(header))
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<header><h1>{title}</h1><dl>{facts}</dl></header>\n"
    )
    yield from (f"{_article(message)}\n" for message in messages)
    yield "</body>\n</html>\n"


def _heading(header: Header) -> str:
    return safe_text.one_line(header.session.title or header.session.id)


def _facts(header: Header) -> list[tuple[str, str]]:
    session = header.session
    found: list[tuple[str, str]] = [("session", session.id), ("state", session.state)]
    found += [("begun", screen.moment(session.created_at)), ("active", screen.moment(session.active_at))]
    return [*found, *(("address", address.spelling) for address in header.addresses)]


def _article(message: Message) -> str:
    parts = "\n".join(_escaped(part) for part in conversation_text.shown_parts(message))
    head = escape(f"{conversation_text.author(message)}, {screen.moment(message.at)}")
    return f'<article class="{escape(message.role)}" id="{escape(message.id)}">\n<h2>{head}</h2>\n{parts}\n</article>'


def _escaped(part: Part) -> str:
    words = _safe(safe_text.lines(conversation_text.part_text(part, whole=True)))
    return f'<div class="said">{words}</div>' if isinstance(part, Text) else f"<pre>{words}</pre>"


def _safe(text: str) -> str:
    return escape(text, quote=True)


def _as_markdown(part: Part) -> str:
    words = safe_text.lines(conversation_text.part_text(part, whole=True))
    match part:
        case Text():
            return words
        case Thought() | ToolCall() | ToolResult() | Attachment() | Custom():
            fence = "`" * max(3, _longest_run(words) + 1)
            return f"{fence}text\n{words}\n{fence}"


def _longest_run(text: str) -> int:
    """Return the length of the longest run of backquotes: a fence must be longer."""
    return max((len(list(run)) for letter, run in groupby(text) if letter == "`"), default=0)
