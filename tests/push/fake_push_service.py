"""A push service on loopback, and the browser behind it: it checks the server's signature and decrypts what it gets."""

import base64
import json
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from cryptography.hazmat.primitives import hashes, hmac, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

PATIENCE = 90.0


def b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


def _mac(key: bytes, content: bytes) -> bytes:
    made = hmac.HMAC(key, hashes.SHA256())
    made.update(content)
    return made.finalize()


def _hkdf(salt: bytes, material: bytes, info: bytes, length: int) -> bytes:
    """HKDF with one block of output, as RFC 8291 writes it."""
    return _mac(_mac(salt, material), info + b"\1")[:length]


class Got(NamedTuple):
    """A message that the browser got."""

    device: str
    message: dict[str, Any]
    headers: dict[str, str]


class FakeBrowser:
    """A browser: its keys, and what it shows."""

    def __init__(self) -> None:
        self._private = ec.generate_private_key(ec.SECP256R1())
        self.secret = b"sixteen byte key"

    @property
    def public(self) -> bytes:
        encoding, form = serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
        return self._private.public_key().public_bytes(encoding, form)

    def decrypt(self, body: bytes) -> bytes:
        """Decrypt a message as RFC 8291 says, without our code."""
        salt, (size, length) = body[:16], struct.unpack(">IB", body[16:21])
        sender = body[21 : 21 + length]
        assert (size, length) == (4096, 65)
        shared = self._private.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender))
        material = _hkdf(self.secret, shared, b"WebPush: info\0" + self.public + sender, 32)
        key = _hkdf(salt, material, b"Content-Encoding: aes128gcm\0", 16)
        nonce = _hkdf(salt, material, b"Content-Encoding: nonce\0", 12)
        record = AESGCM(key).decrypt(nonce, body[21 + length :], None)
        assert record.rstrip(b"\0").endswith(b"\2")
        return record.rstrip(b"\0")[:-1]


class FakePushService:
    """What devices got. `plan` has the statuses of the next requests."""

    def __init__(self) -> None:
        self.url = ""
        self.got: list[Got] = []
        self.plan: list[int] = []
        self.refused: list[str] = []
        self.requests = 0
        self.devices: dict[str, FakeBrowser] = {}
        self.server_key = ""
        self._changed = threading.Condition()

    @property
    def place(self) -> str:
        return self.url.removeprefix("http://")

    def subscription(self, device: str) -> dict[str, Any]:
        """What a browser gives to a server that it subscribes to."""
        browser = self.devices.setdefault(device, FakeBrowser())
        keys = {"p256dh": b64(browser.public), "auth": b64(browser.secret)}
        return {"endpoint": f"{self.url}/{device}", "expirationTime": None, "keys": keys}

    def wait_for(self, reached: Callable[[], bool]) -> None:
        """Wait until this holds; it is asked after every request."""
        with self._changed:
            assert self._changed.wait_for(reached, PATIENCE), (self.got, self.refused, self.requests)

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> int:
        with self._changed:
            self.requests += 1
            status = self.plan.pop(0) if self.plan else 201
            if status == 201:
                try:
                    self._check_signature(headers["authorization"])
                    message = json.loads(self.devices[path.strip("/")].decrypt(body))
                    self.got.append(Got(path.strip("/"), message, headers))
                except Exception as error:  # noqa: BLE001  # whatever is wrong with the message
                    self.refused.append(repr(error))
                    status = 400
            self._changed.notify_all()
            return status

    def _check_signature(self, header: str) -> None:
        fields = dict(part.strip().split("=", 1) for part in header.removeprefix("vapid ").split(","))
        head, claims, signature = fields["t"].split(".")
        assert json.loads(unb64(head)) == {"typ": "JWT", "alg": "ES256"}
        raw = unb64(signature)
        point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), unb64(fields["k"]))
        der = encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
        point.verify(der, f"{head}.{claims}".encode(), ec.ECDSA(hashes.SHA256()))
        told = json.loads(unb64(claims))
        assert told["aud"] == self.url
        assert told["sub"].startswith("mailto:")
        self.server_key = fields["k"]


@contextmanager
def fake_push_service() -> Iterator[FakePushService]:
    """A push service that answers."""
    service = FakePushService()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.send_response(service.answer(self.path, headers, body))
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()
