"""Signatures of webhooks: HMAC-SHA256 with a shared secret, in the forms that other programs use.

- `standard` (Standard Webhooks): `webhook-id`, `webhook-timestamp` and `webhook-signature: v1,BASE64`, over
  `id.timestamp.body`.
- `stripe`: `stripe-signature: t=TIMESTAMP,v1=HEX`, over `timestamp.body`.
- `github`: `x-hub-signature-256: sha256=HEX`, over the body. It has no time: only its idempotency stops a replay.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

SignatureFormat = Literal["standard", "github", "stripe"]
# A sender that changes its secret signs with the old and the new one.
_MOST_SIGNATURES = 8


class SignedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request whose signature is valid: its id, if that is signed, and its time in seconds since 1970."""

    id: str | None
    timestamp: int | None


def parse_secret(text: str) -> bytes:
    """The bytes of a secret: those of `whsec_…` are base64, any other text is used as it is.

    Raises:
        ValueError: It is too short, or not valid.
    """
    try:
        secret = base64.b64decode(text[6:], validate=True) if text.startswith("whsec_") else text.encode()
    except binascii.Error as error:
        raise ValueError("the text after whsec_ is not base64") from error
    if len(secret) < 16:
        raise ValueError("it has less than 16 bytes")
    return secret


def sign(secrets: Sequence[bytes], id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers that sign a request, in the standard form."""
    content = b"%s.%d.%s" % (id.encode(), timestamp, body)
    signatures = (base64.b64encode(_mac(secret, content)).decode() for secret in secrets)
    return {
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }


def verify(
    format: SignatureFormat, secrets: Sequence[bytes], headers: Mapping[str, str], body: bytes
) -> SignedRequest | None:
    """The signed request; None if no signature is valid. The time is not compared with a clock.

    Args:
        format: The form of the signature.
        secrets: The valid secrets.
        headers: The headers of the request, by names in lower case.
        body: The body.
    """
    match format:
        case "standard":
            return _standard(secrets, headers, body)
        case "stripe":
            return _stripe(secrets, headers.get("stripe-signature", ""), body)
        case "github":
            sent = headers.get("x-hub-signature-256", "").removeprefix("sha256=")
            valid = _any_valid(secrets, body, [_from_hex(sent)])
            return SignedRequest(id=None, timestamp=None) if valid else None


def _standard(secrets: Sequence[bytes], headers: Mapping[str, str], body: bytes) -> SignedRequest | None:
    name, written = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    timestamp = _seconds(written)
    sent = [_from_base64(one.removeprefix("v1,")) for one in _some(headers.get("webhook-signature", "").split(" "))]
    content = b"%s.%s.%s" % (name.encode("latin-1", "replace"), written.encode("latin-1", "replace"), body)
    if not _any_valid(secrets, content, sent) or timestamp is None or not name:
        return None
    return SignedRequest(id=name, timestamp=timestamp)


def _stripe(secrets: Sequence[bytes], header: str, body: bytes) -> SignedRequest | None:
    fields = [field.partition("=") for field in _some(header.split(","))]
    written = next((value for name, _, value in fields if name == "t"), "")
    timestamp = _seconds(written)
    sent = [_from_hex(value) for name, _, value in fields if name == "v1"]
    if not _any_valid(secrets, written.encode("latin-1", "replace") + b"." + body, sent) or timestamp is None:
        return None
    return SignedRequest(id=None, timestamp=timestamp)


def _some(fields: list[str]) -> Iterator[str]:
    return iter(fields[:_MOST_SIGNATURES])


def _any_valid(secrets: Sequence[bytes], content: bytes, sent: Sequence[bytes]) -> bool:
    """Whether one of the signatures is valid. The time that this takes does not depend on which."""
    valid = False
    for secret in secrets:
        expected = _mac(secret, content)
        for signature in sent:
            valid |= hmac.compare_digest(expected, signature)
    return valid


def _mac(secret: bytes, content: bytes) -> bytes:
    return hmac.new(secret, content, hashlib.sha256).digest()


def _seconds(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 12 else None


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""
