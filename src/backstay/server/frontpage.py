"""The plain page: says in plain words what is running, and where its API is. It needs no script."""

from collections.abc import Iterable, Mapping
from html import escape

from backstay.model.session import Session
from backstay.server.caller import Caller
from backstay.server.service import Facts

_LINKS = {
    "/": "the page, for browsers with JavaScript",
    "/api/openapi.json": "the API, described in OpenAPI",
    "/api/sessions": "your sessions",
    "/healthz": "whether the process answers",
    "/readyz": "whether the store answers too",
    "/metrics": "what is counted",
}


def front_page(facts: Facts, caller: Caller, newest: Iterable[Session]) -> str:
    """The page as its caller sees it: their own sessions, and nobody else's."""
    told = {
        "version": facts.version,
        "agents": ", ".join(facts.agents) or "none: turns wait for another process",
        "store": facts.engine,
        "you": caller.owner,
    }
    why = f"<p>{escape(facts.why)}</p>" if facts.why else ""
    body = f"{why}{_facts(told)}<h2>Newest sessions</h2>{_sessions(newest)}<h2>Links</h2>{_links(_LINKS)}"
    return _document("Backstay is running", body)


def strangers_page() -> str:
    """For those of whom it is not known who they are: nothing is told but how to sign in."""
    told = "Sign in with the link that <code>backstay serve</code> printed, or make another: <code>backstay link</code>"
    return _document("Backstay", f"<p>{told}</p>")


def _document(title: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f'<title>{escape(title)}</title><link rel="stylesheet" href="/static/plain.css">'
        f"<main><h1>{escape(title)}</h1>{body}</main></html>\n"
    )


def _facts(facts: Mapping[str, str]) -> str:
    return "<dl>" + "".join(f"<dt>{escape(name)}<dd>{escape(fact)}" for name, fact in facts.items()) + "</dl>"


def _sessions(newest: Iterable[Session]) -> str:
    lines = [
        f'<li><a href="/api/sessions/{session.id}/messages">{escape(_name(session))}</a> '
        f"<small>{escape(_state(session))}</small>"
        for session in newest
    ]
    return f"<ul>{''.join(lines)}</ul>" if lines else "<p>None yet. Start one: <code>backstay chat</code></p>"


def _name(session: Session) -> str:
    return session.title or (session.preview or "")[:80] or session.id


def _state(session: Session) -> str:
    if session.running:
        return "running"
    counted = "1 turn" if session.turns == 1 else f"{session.turns:,} turns"
    return counted if session.state == "open" else session.state


def _links(links: Mapping[str, str]) -> str:
    return "<ul>" + "".join(f'<li><a href="{path}">{path}</a> {what}' for path, what in links.items()) + "</ul>"
