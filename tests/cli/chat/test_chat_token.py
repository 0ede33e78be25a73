"""The servers to which `backstay chat --server` sends the token beside the database."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from backstay.server.auth.authenticator import new_secret
from tests.cli.chat.chat_process import piped
from tests.server.server_process import serving

FAR = "http://chat.example.org:8642"


class Listener(ThreadingHTTPServer):
    """Answers every request with an error or a redirect, and records the tokens that it received."""

    def __init__(self, redirect: str | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.redirect = redirect
        self.requests: list[str] = []
        self.tokens: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Listener

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", "0")))
        self.server.requests.append(self.path)
        self.server.tokens.append(self.headers.get("authorization"))
        if self.server.redirect is None:
            self.send_response(401)
        else:
            self.send_response(307)
            self.send_header("location", f"{self.server.redirect}{self.path}")
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST  # noqa: N815  # the name that the library looks for

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def listening(redirect: str | None = None) -> Iterator[Listener]:
    with Listener(redirect) as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        try:
            yield listener
        finally:
            listener.shutdown()


@pytest.fixture
def proxy() -> Iterator[Listener]:
    """Receives every request for a host that is not this machine."""
    with listening() as listener:
        yield listener


@pytest.fixture
def token(tmp_path: Path) -> str:
    """The token beside the database."""
    secret = new_secret()
    path = tmp_path / "chat.db.token"
    path.write_text(secret + "\n")
    path.chmod(0o600)
    return secret


def chat(folder: Path, proxy: Listener | None, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
    far = {} if proxy is None else {"HTTP_PROXY": proxy.url, "HTTPS_PROXY": proxy.url}
    done = piped(folder, "--db", "chat.db", *arguments, said=b"hello\n", **far, **more)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize(
    "url",
    [FAR, "http://127.0.0.1.example.org", "http://127.example.org:8642", "http://localhost.example.org"],
)
def test_the_local_token_is_not_sent_to_another_host(tmp_path: Path, token: str, proxy: Listener, url: str) -> None:
    result = chat(tmp_path, proxy, "--server", url)

    assert result.returncode == 1
    assert proxy.requests == []
    host = url.removeprefix("http://").partition(":")[0]
    assert result.stderr.startswith(f"error: the local token is not sent to {host}")
    assert "--token" in result.stderr
    assert token not in result.stderr + result.stdout


def test_a_token_file_of_the_settings_is_the_local_token_too(tmp_path: Path, token: str, proxy: Listener) -> None:
    result = chat(tmp_path, proxy, "--server", FAR, BACKSTAY_TOKEN_FILE=str(tmp_path / "chat.db.token"))

    assert (result.returncode, proxy.requests) == (1, [])


def test_a_named_token_is_sent_to_the_named_server(tmp_path: Path, token: str, proxy: Listener) -> None:
    chat(tmp_path, proxy, "--server", FAR, "--token", "bsk_option")
    chat(tmp_path, proxy, "--server", FAR, BACKSTAY_TOKEN="bsk_environment")
    chat(tmp_path, proxy, "--server", FAR, "--token-file", "chat.db.token")

    assert proxy.tokens == ["Bearer bsk_option", "Bearer bsk_environment", f"Bearer {token}"]


def test_the_local_token_is_sent_to_this_machine(tmp_path: Path, token: str) -> None:
    with listening() as here:
        chat(tmp_path, None, "--server", here.url)
        chat(tmp_path, None, "--server", here.url.replace("127.0.0.1", "localhost"))

        assert here.tokens == [f"Bearer {token}"] * 2


def test_the_local_token_is_sent_to_the_server_of_its_database(tmp_path: Path, proxy: Listener) -> None:
    """A server records beside its token under which addresses it is reached."""
    public = ("--host", "127.0.0.1", "--allowed-host", "chat.example.org", "--allowed-host", "127.0.0.1")
    with serving(tmp_path, "--db", "chat.db", *public) as served:
        ours = f"http://chat.example.org:{served.port}"
        chat(tmp_path, proxy, "--server", ours)
        assert proxy.tokens == [f"Bearer {served.token}"]
        for other in (FAR + "1", ours.replace("http:", "https:"), ours.replace("chat.", "chat2.")):
            result = chat(tmp_path, proxy, "--server", other)
            assert (result.returncode, len(proxy.tokens)) == (1, 1), other


def test_a_redirect_does_not_carry_the_token_to_another_origin(tmp_path: Path, token: str) -> None:
    with listening() as other, listening(redirect=other.url) as first:
        result = chat(tmp_path, None, "--server", first.url)

        assert first.tokens == [f"Bearer {token}"]
        assert other.requests == []
        assert result.returncode == 1
        assert "Traceback" not in result.stderr
