"""A session as a page to read: Markdown, or one HTML file that is safe to open and asks nobody for anything."""

from html import escape
from itertools import groupby

from backstay.cli import conversation, plain, screen
from backstay.model.content import Attachment, Custom, Part, Text, Thought, ToolCall, ToolResult
from backstay.model.export import Export
from backstay.model.message import Message

# Nothing may be loaded, run or sent from the page; only its own style sheet counts.
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


def markdown(export: Export) -> str:
    """The conversation as Markdown: what was said as it was said, what tools did in code blocks."""
    lines = [f"# {_heading(export)}", ""]
    lines += [f"- {name}: {plain.one_line(fact)}" for name, fact in _facts(export)]
    for message in export.conversation():
        lines += ["", f"## {conversation.speaker(message)}, {screen.moment(message.at)}", ""]
        lines += ["\n\n".join(_marked_down(part) for part in message.parts)]
    return "\n".join(lines) + "\n"


def html(export: Export) -> str:
    """The conversation as one HTML file. Everything that was stored is escaped; nothing else is needed to show it."""
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{_safe(plain.one_line(fact))}</dd>" for name, fact in _facts(export))
    body = "\n".join(_article(message) for message in export.conversation())
    title = _safe(_heading(export))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<header><h1>{title}</h1><dl>{facts}</dl></header>\n{body}\n</body>\n</html>\n"
    )


def _heading(export: Export) -> str:
    return plain.one_line(export.session.title or export.session.id)


def _facts(export: Export) -> list[tuple[str, str]]:
    session = export.session
    told: list[tuple[str, str]] = [("session", session.id), ("state", session.state)]
    told += [("begun", screen.moment(session.created_at)), ("active", screen.moment(session.active_at))]
    return [*told, *(("address", address.spelling) for address in export.addresses)]


def _article(message: Message) -> str:
    parts = "\n".join(_escaped(part) for part in message.parts)
    head = escape(f"{conversation.speaker(message)}, {screen.moment(message.at)}")
    return f'<article class="{escape(message.role)}" id="{escape(message.id)}">\n<h2>{head}</h2>\n{parts}\n</article>'


def _escaped(part: Part) -> str:
    words = _safe(plain.lines(conversation.said(part, whole=True)))
    return f'<div class="said">{words}</div>' if isinstance(part, Text) else f"<pre>{words}</pre>"


def _safe(text: str) -> str:
    return escape(text, quote=True)


def _marked_down(part: Part) -> str:
    words = plain.lines(conversation.said(part, whole=True))
    match part:
        case Text():
            return words
        case Thought() | ToolCall() | ToolResult() | Attachment() | Custom():
            fence = "`" * max(3, _longest_run(words) + 1)
            return f"{fence}text\n{words}\n{fence}"


def _longest_run(text: str) -> int:
    """How many backquotes stand in a row at most: a fence must be longer."""
    return max((len(list(run)) for letter, run in groupby(text) if letter == "`"), default=0)
