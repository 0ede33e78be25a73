"""The text of an unfinished answer: the text so far, and the running tools."""

from backstay.gateways.outbox.answer_text import tool_name
from backstay.gateways.outbox.text_limits import fence_at, piece, units
from backstay.model.content import text_of
from backstay.model.event import EventBody, TextDelta, ToolCalled, ToolReturned, TurnFolded

_LEAST_KEPT = 8192
_MOST_TOOLS = 3


class PreviewText:
    """The events of one turn as a text. Only the end of a long one is kept."""

    def __init__(self) -> None:
        self._text = ""
        self._running: dict[str, str] = {}
        self._returned = 0
        self._breaks = False

    def add(self, body: EventBody) -> bool:
        """Add an event of the turn. Returns whether the text is another one now. Thoughts are not shown."""
        match body:
            case TextDelta(text=text):
                self._write(text)
            case ToolCalled(call=call):
                self._running[call.id], self._breaks = tool_name(call.name), True
            case ToolReturned(result=result):
                self._returned += self._running.pop(result.id, None) is not None
            case TurnFolded(messages=messages):
                for message in messages:
                    if message.role == "assistant":
                        self._breaks = True
                        self._write(text_of(message.parts))
            case _:
                return False
        return True

    def _write(self, text: str) -> None:
        if self._breaks and self._text and text:
            self._text = self._text.rstrip() + "\n\n"
        self._breaks = self._breaks and not text
        self._text += text
        if len(self._text) > 4 * _LEAST_KEPT:
            self._text = _end_of(self._text, _LEAST_KEPT)

    def shown(self, limit: int) -> str:
        """The text, with at most `limit` UTF-16 units."""
        status = self._status()
        room = limit - units(status) - 20
        text = self._text.strip()
        if units(text) > room:
            text = "…\n" + _end_of(text, room // 2)
        return "\n\n".join(filter(None, [text, status])) or "💭 …"

    def _status(self) -> str:
        if not self._running:
            return ""
        names = list(self._running.values())
        shown = ", ".join(f"`{name}`" for name in names[:_MOST_TOOLS])
        more = f" and {len(names) - _MOST_TOOLS} more" if len(names) > _MOST_TOOLS else ""
        return f"⚙️ {shown}{more} …" + (f" ({self._returned} done)" if self._returned else "")


def _end_of(text: str, length: int) -> str:
    """The last characters of a text, from the beginning of a line on if there is one, with its fence opened again."""
    start = len(text) - length
    line = text.find("\n", start) + 1
    start = line if 0 < line < len(text) - length // 2 else start
    fence = fence_at(text, start)
    return piece(text, start, len(text)) if fence is not None else text[start:]
