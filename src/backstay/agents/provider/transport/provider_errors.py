"""Faults of a provider: converts error responses to errors, and decides whether a retry may help."""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import msgspec

from backstay.errors import AgentError, AgentFailed, ContextOverflow, InputRefused, KeyRefused, ModelUnknown
from backstay.model.content import Json

_MOST_QUOTED = 300
_TOO_LONG = re.compile(
    r"context.{0,9}(length|window|size)|maximum context|(prompt|input|request).{0,20}too (long|large)|too many tokens"
    r"|token count.{0,40}exceeds",
    re.IGNORECASE | re.DOTALL,
)
_NO_MONEY = re.compile(
    r"insufficient.{0,9}(quota|credit|balance|funds)|exceeded your current quota|credit balance is too low",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(r"api.key.{0,20}(not valid|invalid|expired|not found)|invalid.{0,5}api.key", re.IGNORECASE)
_WAIT = re.compile(r"retry in (\d{1,6}(?:\.\d{1,9})?) ?s", re.IGNORECASE)
_FLAGGED = re.compile(r"flagged|moderation|content.{0,9}(policy|filter)|safety|prohibited.content", re.IGNORECASE)
_REFUSED = {400, 422}
# The statuses of Anthropic's errors, for errors inside a stream.
_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "overloaded_error": 529,
}
_PASSING = {408, 409, 425, 429}


class ProviderFault(Exception):
    """A failed request: the error for the caller, whether it is transient, and the delay requested by the provider."""

    def __init__(self, error: AgentError, *, passing: bool = False, wait: float | None = None) -> None:
        super().__init__(str(error))
        self.error, self.passing, self.wait = error, passing, wait


class ProviderReply(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP response other than the requested stream; `message` is its error message."""

    where: str
    model: str
    status: int
    headers: Mapping[str, str]
    message: str
    with_key: bool

    def fault(self) -> ProviderFault:
        """Convert the response to a fault."""
        error = self._error()
        passing = type(error) is AgentFailed and (self.status in _PASSING or self.status >= 500)
        passing = passing and not _NO_MONEY.search(self.message)
        return ProviderFault(error, passing=passing, wait=self._wait())

    def _wait(self) -> float | None:
        """Return the delay in seconds that the provider requests, in a header or, as Google does, in its message."""
        named = _WAIT.search(self.message)
        return requested_delay(self.headers) or (float(named[1]) if named else None)

    def _error(self) -> AgentError:
        text = self._with_message(f"{self.where} answered {self.status}")
        if self.with_key and (self.status == 401 or (self.status == 400 and _BAD_KEY.search(self.message))):
            # The provider's message is left out: some providers repeat a part of the key.
            return KeyRefused(f"{self.where} does not accept the API key")
        if self.status in (400, 403, 422) and _FLAGGED.search(self.message):
            return InputRefused(text)
        if self.status in (401, 403):
            return KeyRefused(text)
        if self.status == 404:
            return ModelUnknown(self._with_message(f"{self.where} does not offer the model {self.model!r}"))
        if self.status == 413 or (self.status != 429 and _TOO_LONG.search(self.message)):
            return ContextOverflow(text)
        if self.status in _REFUSED and not _NO_MONEY.search(self.message):
            return InputRefused(text)
        return AgentFailed(text, hint=self._hint())

    def _hint(self) -> str:
        if _NO_MONEY.search(self.message):
            return "Check the plan and the billing of the account behind this key."
        if self.status in _PASSING or self.status >= 500:
            return "The provider is overloaded or has failed; send the message again later."
        return "Check base_url, the model and its options."

    def _with_message(self, fact: str) -> str:
        return f"{fact}: {self.message}" if self.message else fact


def quoted(body: bytes, secret: str | None) -> str:
    """Return the message of an error body on one line, shortened, and without the secret."""
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in words(body)).split())
    if secret:
        text = text.replace(secret, "[key]")
    return text if len(text) <= _MOST_QUOTED else text[:_MOST_QUOTED] + "…"


def words(body: bytes) -> str:
    """Return the message of an error body of any format; empty for an HTML page."""
    try:
        return message_in(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        text = body.decode(errors="replace").strip()
        return "" if text.startswith("<") else text


def message_in(error: Json) -> str:
    """Return the message in a JSON error: providers put it in one of several places."""
    match error:
        case str():
            return error
        case {"error": dict() | str() as inner}:
            return message_in(inner)
        case {"message": str() as message}:
            code = error.get("code") or error.get("type")
            return f"{message} [{code}]" if isinstance(code, str) else message
        case {"detail": detail}:
            return detail if isinstance(detail, str) else msgspec.json.encode(detail).decode()
        case _:
            return ""


def status_of(error: Json) -> int:
    """Return the HTTP status that fits an error inside a stream that started with status 200."""
    match error:
        case {"code": int() as code} if 400 <= code < 600:
            return code
        case {"type": str() as kind} if kind in _STATUSES:
            return _STATUSES[kind]
        case _:
            return 500


def requested_delay(headers: Mapping[str, str]) -> float | None:
    """Return the delay requested by the provider, in seconds: from a number, or a date relative to its own Date."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        if re.fullmatch(r"\s*\d{1,9}(\.\d{0,9})?\s*", headers.get(name, "")):
            return float(headers[name]) * unit
    try:
        until, now = parsedate_to_datetime(headers["retry-after"]), parsedate_to_datetime(headers["date"])
        return max(0.0, (until - now).total_seconds())
    except (KeyError, ValueError, TypeError):
        return None
