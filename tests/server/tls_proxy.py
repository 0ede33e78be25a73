"""A proxy with TLS before a server, as in a deployment, and the authority that signs its certificate."""

import asyncio
import datetime as dt
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.server.running_server import PATIENCE

_LIFE = dt.timedelta(days=1)


class Authority:
    """An authority of its own, which signs certificates for names and addresses."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._builder(self._name, self._key.public_key(), expired=False).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(certificate.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def certificate(self, host: str, *, expired: bool = False) -> Path:
        """A file with a certificate for this host, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        built = self._builder(subject, key.public_key(), expired=expired)
        signed = built.add_extension(x509.SubjectAlternativeName([_general_name(host)]), critical=False)
        file = self._folder / f"{host}-{expired}.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        certificate = signed.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        file.write_bytes(private + certificate)
        return file

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, expired: bool) -> x509.CertificateBuilder:
        end = dt.datetime.now(dt.UTC) + (-_LIFE if expired else _LIFE)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(end - 10 * _LIFE)
            .not_valid_after(end)
        )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


class TlsProxy(NamedTuple):
    """Where the proxy listens, and the bytes that clients have sent to it."""

    port: int
    received: bytearray


@contextmanager
def tls_proxy(port: int, certificate: Path) -> Iterator[TlsProxy]:
    """A proxy that decrypts and forwards everything to this port, in a thread of its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    received, ready, stop = bytearray(), Future[int](), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ours, theirs = await asyncio.open_connection("127.0.0.1", port)
        ways = [asyncio.create_task(_copy(reader, theirs, received)), asyncio.create_task(_copy(ours, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for end in (theirs, writer):
                await _drop(end)

    async def serve() -> None:
        async with await asyncio.start_server(forward, "127.0.0.1", 0, ssl=context) as listening:
            ready.set_result(listening.sockets[0].getsockname()[1])
            await stop.wait()
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    # A handshake that a client breaks off is what some tests are about; asyncio would log it.
    loop.set_exception_handler(lambda loop, context: None)
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    try:
        yield TlsProxy(ready.result(PATIENCE), received)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE)
        loop.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, seen: bytearray | None = None) -> None:
    with suppress(OSError):
        while data := await source.read(65_536):
            if seen is not None:
                seen += data
            target.write(data)
            await target.drain()


async def _drop(end: asyncio.StreamWriter) -> None:
    end.transport.abort()
    with suppress(OSError):
        await end.wait_closed()
