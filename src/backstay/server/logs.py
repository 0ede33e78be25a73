"""Logs: events with fields, in JSON or for people to read. Never contents of messages, never secrets."""

import logging
import sys
from datetime import UTC, datetime
from typing import Literal

import msgspec

log = logging.getLogger("backstay.server")

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "color_message"}
_encode = msgspec.json.Encoder(enc_hook=str).encode


class JsonLines(logging.Formatter):
    """A record as one line of JSON: what a message holds can break no line and forge no field."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "from": record.name,
            "event": record.getMessage(),
        }
        line |= {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return _encode(line).decode(errors="replace")


class TextLines(logging.Formatter):
    """A record for a person at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{name}={value!r}" for name, value in record.__dict__.items() if name not in _STANDARD)
        moment = datetime.fromtimestamp(record.created, UTC)
        line = f"{moment:%H:%M:%S} {record.levelname.lower():<7} {record.getMessage()!s} {fields}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def set_up(level: str, form: Literal["auto", "json", "text"]) -> None:
    """Write every record of this process to stderr; `auto` is for whoever reads there, a person or a program."""
    handler = logging.StreamHandler(sys.stderr)
    for_people = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler.setFormatter(TextLines() if for_people else JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    # Its access log would repeat query strings; ours names the route.
    logging.getLogger("uvicorn.access").disabled = True
