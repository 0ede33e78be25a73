"""The encryption of Web Push (RFC 8291), and the signature that names this server (VAPID, RFC 8292).

Only the browser can read a message, not the push service. The primitives are those of `cryptography`, the extra `push`:
`pywebpush` would do the rest, and brings two HTTP clients along.
"""

import base64
import os
import struct
from urllib.parse import urlsplit

import msgspec
from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

# One record holds every message; push services accept no longer ones.
RECORD_BYTES = 4_096
_LAST_RECORD = b"\x02"
_KEY_BYTES, _SECRET_BYTES = 65, 16
# A signature is valid for so long, in seconds; services accept at most a day.
_SIGNED_SECONDS = 12 * 3_600


def encoded(content: bytes) -> str:
    """Bytes as base64url without padding."""
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def decoded(text: str) -> bytes:
    """The bytes of base64url.

    Raises:
        ValueError: It is not base64url.
    """
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def new_private_key() -> str:
    """A new key of a server, as base64url."""
    return encoded(ec.generate_private_key(ec.SECP256R1()).private_numbers().private_value.to_bytes(32))


def check_device(public_key: str, secret: str) -> None:
    """Check the keys of a browser.

    Raises:
        ValueError: They are not a public key and a secret.
    """
    _public(decoded(public_key))
    if len(decoded(secret)) != _SECRET_BYTES:
        raise ValueError(f"the secret has not {_SECRET_BYTES} bytes")


class ServerKey:
    """The key that names a server to the push services."""

    def __init__(self, private_key: str) -> None:
        self._private = _private(private_key)

    @property
    def public(self) -> str:
        """The public key, to which browsers subscribe, as base64url."""
        return encoded(_point(self._private.public_key()))

    def authorization(self, endpoint: str, contact: str, now: int) -> str:
        """The Authorization header for a push service; `now` is in seconds since 1970."""
        parts = urlsplit(endpoint)
        claims = {"aud": f"{parts.scheme}://{parts.netloc}", "exp": now + _SIGNED_SECONDS, "sub": contact}
        fields = ({"typ": "JWT", "alg": "ES256"}, claims)
        signed = ".".join(encoded(msgspec.json.encode(field)) for field in fields)
        one, other = decode_dss_signature(self._private.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"vapid t={signed}.{encoded(one.to_bytes(32) + other.to_bytes(32))}, k={self.public}"


def encrypt(
    message: bytes, public_key: str, secret: str, *, salt: bytes | None = None, private_key: str | None = None
) -> bytes:
    """Encrypt a message for a browser, in the coding `aes128gcm`.

    Args:
        message: The message, of at most 3,993 bytes.
        public_key: The browser's public key, as base64url.
        secret: The browser's secret, as base64url.
        salt: 16 bytes; None: random ones.
        private_key: The key of this message, as base64url; None: a new one.

    Raises:
        ValueError: The keys are not valid, or the message is too long.
    """
    salt = os.urandom(16) if salt is None else salt
    own = ec.generate_private_key(ec.SECP256R1()) if private_key is None else _private(private_key)
    theirs, ours = decoded(public_key), _point(own.public_key())
    if len(message) > RECORD_BYTES - 86 - 17:
        raise ValueError(f"the message has {len(message)} bytes")
    shared = own.exchange(ec.ECDH(), _public(theirs))
    key_material = _derive(decoded(secret), shared, b"WebPush: info\0" + theirs + ours, 32)
    key = _derive(salt, key_material, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derive(salt, key_material, b"Content-Encoding: nonce\0", 12)
    head = salt + struct.pack(">IB", RECORD_BYTES, len(ours)) + ours
    return head + AESGCM(key).encrypt(nonce, message + _LAST_RECORD, None)


def _derive(salt: bytes, material: bytes, info: bytes, length: int) -> bytes:
    return HKDF(algorithm=hashes.SHA256(), length=length, salt=salt, info=info).derive(material)


def _private(text: str) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(int.from_bytes(decoded(text)), ec.SECP256R1())


def _public(content: bytes) -> ec.EllipticCurvePublicKey:
    if len(content) != _KEY_BYTES:
        raise ValueError(f"the public key has not {_KEY_BYTES} bytes")
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), content)
    except InvalidKey as error:
        raise ValueError("the public key is not a point of the curve") from error


def _point(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
