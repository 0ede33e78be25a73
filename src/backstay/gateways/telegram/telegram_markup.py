"""Markdown as the HTML that Telegram reads. For every text the HTML is well-formed and shows all of it."""

import re
from html import escape

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n`]*)$")
_HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*?)\s*#*$")
_BULLET = re.compile(r"^(\s*)[-*+](\s+)(?=\S)")
_QUOTE = re.compile(r"^ {0,3}> ?")
_LANGUAGE = re.compile(r"[\w+#.-]+")
_CODE = re.compile(r"(`+)(.+?)(?<!`)\1(?!`)")
_LINK = re.compile(r"\[([^\[\]\n]+)\]\((https?://[^\s()<>\"\0]+|tg://[^\s()<>\"\0]+)\)")
# Each pattern has the marked text in its only group. Underscores inside of words are part of names.
_SPANS = (
    (re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*"), "b"),
    (re.compile(r"(?<!\w)__(?=\S)(.+?)(?<=\S)__(?!\w)"), "b"),
    (re.compile(r"~~(?=\S)(.+?)(?<=\S)~~"), "s"),
    (re.compile(r"(?<![\w*])\*(?=[^\s*])(.+?)(?<=[^\s*])\*(?![\w*])"), "i"),
    (re.compile(r"(?<![\w_])_(?=[^\s_])(.+?)(?<=[^\s_])_(?![\w_])"), "i"),
)

_TAGS = frozenset(tag for _, tag in _SPANS)
_KEPT = re.compile(r"\0(\d+)\0")


def telegram_html(text: str) -> str:
    """The HTML of a Markdown text: bold, italic, struck, code, links, headings, lists and quotes; all else as it is."""
    blocks: list[str] = []
    lines = text.split("\n")
    index = 0
    while index < len(lines):
        opening = _FENCE.match(lines[index])
        if opening is not None:
            end = _end_of_code(lines, index, opening[1])
            blocks.append(_code_block(lines[index + 1 : end], opening[2].strip()))
            index = end + 1
        elif _QUOTE.match(lines[index]):
            end = index
            while end < len(lines) and _QUOTE.match(lines[end]):
                end += 1
            quoted = "\n".join(_line(_QUOTE.sub("", line, count=1)) for line in lines[index:end])
            blocks.append(f"<blockquote>{quoted}</blockquote>")
            index = end
        else:
            blocks.append(_line(lines[index]))
            index += 1
    return "\n".join(blocks)


def _end_of_code(lines: list[str], start: int, mark: str) -> int:
    """The line that closes a code block; the end of the text if none does."""
    for index in range(start + 1, len(lines)):
        found = _FENCE.match(lines[index])
        if found is not None and found[1].startswith(mark) and not found[2].strip():
            return index
    return len(lines)


def _code_block(lines: list[str], language: str) -> str:
    code = escape("\n".join(lines), quote=False)
    if _LANGUAGE.fullmatch(language):
        return f'<pre><code class="language-{escape(language)}">{code}</code></pre>'
    return f"<pre>{code}</pre>"


def _line(line: str) -> str:
    heading = _HEADING.match(line)
    if heading is not None and heading[1]:
        return f"<b>{_inline(heading[1], marked=frozenset('b'))}</b>"
    bullet = _BULLET.match(line)
    if bullet is not None:
        return f"{bullet[1]}•{bullet[2]}{_inline(line[bullet.end() :])}"
    return _inline(line)


def _inline(text: str, marked: frozenset[str] = frozenset()) -> str:
    """One line. `marked` are the tags around it: Telegram ignores a tag inside of itself."""
    finished: list[str] = []

    def keep(html: str) -> str:
        # Code and links are finished. A NUL, which no message may have, marks their places among the other marks.
        finished.append(html)
        return f"\0{len(finished) - 1}\0"

    text = _CODE.sub(lambda code: keep(_code(code[2])), text.replace("\0", ""))
    text = _LINK.sub(lambda link: keep(f'<a href="{escape(link[2])}">{_spans(link[1], _TAGS)}</a>'), text)
    html = _spans(text, marked)
    while "\0" in html:  # The label of a link may contain code.
        html = _KEPT.sub(lambda place: finished[int(place[1])], html)
    return html


def _code(inside: str) -> str:
    return f"<code>{escape(inside.strip() or inside, quote=False)}</code>"


def _spans(text: str, marked: frozenset[str], first: int = 0) -> str:
    """The text with the marks of `_SPANS` from number `first` on."""
    if first == len(_SPANS):
        return escape(text, quote=False)
    pattern, tag = _SPANS[first]
    html, position = "", 0
    for found in pattern.finditer(text):
        inner = _spans(found[1], marked | {tag}, first + 1)
        html += _spans(text[position : found.start()], marked, first + 1)
        html += inner if tag in marked else f"<{tag}>{inner}</{tag}>"
        position = found.end()
    return html + _spans(text[position:], marked, first + 1)
