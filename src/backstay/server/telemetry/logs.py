"""Logging: records with fields, as JSON or as text.

The log never has the contents of messages, nor our secrets. Tracebacks of an agent's exceptions are logged unchanged.
"""

import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal, TextIO

import msgspec

log = logging.getLogger("backstay.server")

_REPEAT_SECONDS = 10.0
_MOST_KNOWN = 1_000

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "color_message"}
_encode = msgspec.json.Encoder(enc_hook=str).encode


def _encodable(value: object) -> object:
    """Escape lone surrogates, which cannot be encoded, so that the record is not lost."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


class JsonLines(logging.Formatter):
    """One JSON object per line: a message cannot break the line or forge a field."""

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
        return _encode({name: _encodable(value) for name, value in line.items()}).decode()


class TextLines(logging.Formatter):
    """Text for a person at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{name}={value!r}" for name, value in record.__dict__.items() if name not in _STANDARD)
        moment = datetime.fromtimestamp(record.created, UTC)
        line = f"{moment:%H:%M:%S} {record.levelname.lower():<7} {record.getMessage()!s} {fields}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Repeats:
    """A record that was written, and how often it was repeated since."""

    def __init__(self, record: logging.LogRecord, until: float) -> None:
        self.record, self.until, self.count = record, until, 0


class RepeatLimiter(logging.StreamHandler[TextIO]):
    """Writes a repeated warning or error once, then every ten seconds with the number of repetitions.

    A lasting fault must not fill the disk with its log: without free file descriptors, asyncio alone reports the same
    error thousands of times per second.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._repeats: dict[tuple[object, ...], _Repeats] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, or count it."""
        now = self._clock()
        self._write_counts(now)
        if record.levelno >= logging.WARNING:
            key = _identity(record)
            known = self._repeats.get(key)
            if known is not None:
                known.record = record
                known.count += 1
                return
            if len(self._repeats) < _MOST_KNOWN:
                self._repeats[key] = _Repeats(record, now + _REPEAT_SECONDS)
        super().emit(record)

    def _write_counts(self, now: float) -> None:
        for key, known in [*self._repeats.items()]:
            if now < known.until:
                continue
            if known.count:
                known.record.repeated = known.count
                super().emit(known.record)
                known.count, known.until = 0, now + _REPEAT_SECONDS
            else:
                del self._repeats[key]


def _identity(record: logging.LogRecord) -> tuple[object, ...]:
    """The key under which records count as repetitions of each other."""
    error = record.exc_info[1] if record.exc_info else None
    fields = [(name, str(value)) for name, value in record.__dict__.items() if name not in _STANDARD]
    return (record.name, record.levelno, record.getMessage(), type(error), str(error), *sorted(fields))


def set_up(level: str, form: Literal["auto", "json", "text"]) -> None:
    """Write all records of this process to stderr. `auto` selects text on a terminal, otherwise JSON."""
    handler = RepeatLimiter(sys.stderr)
    for_people = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler.setFormatter(TextLines() if for_people else JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    # The HTTP client logs each request: one for every message of a stranger, and one a minute for an idle bot.
    logging.getLogger("httpx").setLevel(logging.NOTSET if level == "debug" else logging.WARNING)
    # Uvicorn's access log would contain query strings; ours has only the operation.
    logging.getLogger("uvicorn.access").disabled = True
