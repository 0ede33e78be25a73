"""An incoming webhook: verifies a request, and reads the message from its body."""

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from backstay.config import Settings
from backstay.errors import BackstayError, ConfigError, InvalidAddress
from backstay.model.addresses.address import Address
from backstay.model.gateways.webhook_settings import IncomingWebhook
from backstay.model.ids import SessionId, check_session_id
from backstay.server.http.problems import Refused, invalid, malformed
from backstay.server.webhooks.json_path import JsonPath
from backstay.server.webhooks.webhook_secrets import read_secrets
from backstay.server.webhooks.webhook_signature import SignedRequest, verify

# The platform of the addresses of webhooks that name no other: chat://webhook/NAME/CONVERSATION.
PLATFORM = "webhook"
# A longer id of a request is replaced by its hash.
_LONGEST_ID = 128


class HookMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The message of a request: where it goes, and the id under which it is accepted once."""

    to: Address | SessionId
    text: str
    request_id: str


class IncomingHook:
    """One incoming webhook."""

    def __init__(self, name: str, hook: IncomingWebhook, valid: tuple[bytes, ...]) -> None:
        self.name, self.hook, self._secrets = name, hook, valid
        self._text, self._sender, self._id, self._conversation = (
            JsonPath.parse(path) if path else None for path in (hook.text, hook.sender, hook.id, hook.conversation)
        )
        self._target = _target(name, hook)

    def verify(self, headers: Mapping[str, str], body: bytes, now: float) -> SignedRequest:
        """Check the signature, and then the time.

        Raises:
            Refused: One of them is not valid.
        """
        signed = verify(self.hook.format, self._secrets, headers, body)
        if signed is None:
            raise unsigned()
        if signed.timestamp is not None and abs(now - signed.timestamp) > self.hook.replay_seconds:
            raise Refused(
                401,
                "stale",
                f"the request was signed more than {self.hook.replay_seconds:g} seconds before or after now",
                hint="Sign each attempt again, and check the clocks of both machines.",
            )
        return signed

    def message(self, signed: SignedRequest, body: bytes) -> HookMessage:
        """Read the message.

        Raises:
            Refused: The body has no message, or not the values that the settings name.
        """
        document = self._document(body)
        text = _plain(body) if self._text is None else self._value(self._text, self.hook.text, document)
        if self._sender is not None:
            text = f"{self._value(self._sender, self.hook.sender, document)}: {text}"
        if not text.strip():
            raise invalid("the message is empty")
        key = self._key(signed, document, body)
        return HookMessage(to=self._to(document), text=text, request_id=f"hook/{self.name}/{key}")

    def _document(self, body: bytes) -> Any:  # Any: any JSON
        if all(path is None for path in (self._text, self._sender, self._id, self._conversation)):
            return None
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise malformed(
                "the body is not valid JSON", "Send JSON, or configure the webhook without paths."
            ) from error

    def _value(self, path: JsonPath, written: str, document: Any) -> str:  # Any: any JSON
        found = path.text_in(document)
        if found is None:
            raise invalid(f"the body has no text at {written!r}", hint="Compare the body with the webhook's settings.")
        return found

    def _to(self, document: Any) -> Address | SessionId:  # Any: any JSON
        if self._conversation is None:
            return self._target
        try:
            return Address.chat(PLATFORM, self.name, chat=self._value(self._conversation, "conversation", document))
        except InvalidAddress as error:
            raise invalid(f"the value of {self.hook.conversation!r} cannot name a conversation: {error}") from error

    def _key(self, signed: SignedRequest, document: Any, body: bytes) -> str:  # Any: any JSON
        """The key of the request, the same for each repetition. Only signed values count: a header may be forged."""
        if self._id is not None:
            key = self._value(self._id, self.hook.id, document)
        elif signed.id is not None:
            key = signed.id
        else:
            return hashlib.sha256(body).hexdigest()
        plain = 0 < len(key) <= _LONGEST_ID and key.isascii() and key.isprintable()
        return key if plain else hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _target(name: str, hook: IncomingWebhook) -> Address | SessionId:
    try:
        if hook.session:
            return check_session_id(hook.session)
        return Address.parse(hook.address) if hook.address else Address.chat(PLATFORM, name or "none", chat="main")
    except BackstayError as error:
        raise ConfigError(f"webhooks.in.{name}: {error}", hint="Write a session id, or chat://…") from error


def _plain(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise malformed("the body is not UTF-8 text") from error


def unsigned() -> Refused:
    """The error for a missing or wrong signature, or an unknown webhook: it does not reveal which."""
    return Refused(
        401, "signature", "the signature is not valid", hint="Sign the request with the secret of the webhook."
    )


def stand_in() -> IncomingHook:
    """A webhook without a known secret: an unknown name costs as much time as a known one."""
    return IncomingHook("", IncomingWebhook(), (secrets.token_bytes(32),))


def incoming_hooks(settings: Settings) -> dict[str, IncomingHook]:
    """The incoming webhooks of the settings, with their secrets.

    Raises:
        ConfigError: A setting or a secret is not valid.
    """
    return {
        name: IncomingHook(name, hook, read_secrets(f"in.{name}", hook))
        for name, hook in settings.webhooks.incoming.items()
    }
