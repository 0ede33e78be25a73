"""TLS: a client talks over HTTPS, and sends nothing to a server whose certificate it cannot verify."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import backstay
from backstay.errors import ConfigError
from backstay.model.turn import Completed
from tests.cli.installed_command import run_cli_in
from tests.server.agents import AGENTS
from tests.server.running_server import RunningServer, run_server
from tests.server.tls_proxy import Authority, tls_proxy

pytestmark = pytest.mark.engines("sqlite")

HOSTS = pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with run_server(tmp_path_factory.mktemp("tls") / "chat.db", AGENTS, https=True) as server:
        yield server


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


class Caller:
    """A user of one of the ways to reach a server, who trusts the authorities of a file, or those of the system."""

    def __init__(self, way: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._way, self._folder, self._monkeypatch = way, folder, monkeypatch
        self.trust(None)

    def trust(self, file: Path | None) -> None:
        """Set the authorities in the environment, as a user does."""
        self._file = file
        self._monkeypatch.delenv("SSL_CERT_DIR", raising=False)
        if file is None:
            self._monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        else:
            self._monkeypatch.setenv("SSL_CERT_FILE", str(file))

    async def say_hello(self, url: str, token: str) -> str:
        """The answer. Raises the error of the client, also that of the command."""
        match self._way:
            case "command":
                more = {"BACKSTAY_TOKEN": token} | ({} if self._file is None else {"SSL_CERT_FILE": str(self._file)})
                result = run_cli_in(self._folder, None, "send", "hello", "--server", url, stdin=b"", **more)
                if result.code:
                    raise ConfigError(result.err)
                return result.out
            case "blocking":
                with backstay.connect_blocking(url, token=token) as client:
                    turn = client.send("new", "hello")
                    assert turn.outcome() == Completed()
                    return client.handle(turn.session).messages()[-1].text
            case _:
                async with backstay.connect(url, token=token) as app:
                    sent = await app.send("new", "hello")
                    assert [event async for event in sent.events()]
                    return (await app.handle(sent.session).messages())[-1].text

    async def refusal(self, url: str, token: str) -> str:
        """The error that the user sees instead of an answer."""
        with pytest.raises(ConfigError) as refused:
            await self.say_hello(url, token)
        return str(refused.value)


@pytest.fixture(params=["async", "blocking", "command"])
def caller(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    return Caller(request.param, tmp_path, monkeypatch)


@HOSTS
async def test_a_client_that_trusts_the_authority_talks_over_https(
    server: RunningServer, authority: Authority, caller: Caller, host: str
) -> None:
    caller.trust(authority.file)
    with tls_proxy(server.port, authority.certificate(host)) as proxy:
        answer = await caller.say_hello(f"https://{host}:{proxy.port}", server.token())

    assert answer.strip() == "hello"


async def test_a_server_of_an_unknown_authority_receives_nothing(
    server: RunningServer, authority: Authority, caller: Caller
) -> None:
    with tls_proxy(server.port, authority.certificate("127.0.0.1")) as proxy:
        message = await caller.refusal(f"https://127.0.0.1:{proxy.port}", server.token())

        assert proxy.received == b""
    assert "the certificate of 127.0.0.1 is not trusted: unable to get local issuer certificate" in message
    assert "set SSL_CERT_FILE to the certificate of its authority" in message


WRONG = {"another host": ("localhost", False, "mismatch"), "another time": ("127.0.0.1", True, "expired")}


@pytest.mark.parametrize("name", WRONG)
async def test_a_certificate_of_another_host_or_time_is_refused(
    server: RunningServer, authority: Authority, caller: Caller, name: str
) -> None:
    host, expired, why = WRONG[name]
    caller.trust(authority.file)
    with tls_proxy(server.port, authority.certificate(host, expired=expired)) as proxy:
        message = await caller.refusal(f"https://127.0.0.1:{proxy.port}", server.token())

        assert proxy.received == b""
    assert "is not trusted: " in message
    assert why in message


async def test_https_to_a_server_without_tls_says_so(server: RunningServer, caller: Caller) -> None:
    message = await caller.refusal(f"https://127.0.0.1:{server.port}", server.token())

    assert "does not speak HTTPS" in message
    assert f"http://127.0.0.1:{server.port}" in message


@pytest.mark.parametrize("content", [None, "no certificate"], ids=["missing", "text"])
async def test_a_file_without_authorities_is_named(caller: Caller, tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "authorities.pem"
    if content is not None:
        file.write_text(content)
    caller.trust(file)

    assert "the certificates of SSL_CERT_FILE cannot be read" in await caller.refusal("https://127.0.0.1:9", "secret")


def test_answers_over_https_ask_browsers_to_stay_with_it(
    server: RunningServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    with tls_proxy(server.port, authority.certificate("localhost")) as proxy, httpx2.Client() as browser:
        answer = browser.get(f"https://localhost:{proxy.port}/")

    assert answer.headers["strict-transport-security"] == "max-age=31536000"
