"""The token file beside a server's database, and the hosts that the chat may send its token to."""

from pathlib import Path

import httpx2

from backstay.config import Chosen, is_loopback
from backstay.errors import ConfigError
from backstay.server.auth.first_token import read_token, recorded_origins, token_path

_PORTS = {"http": 80, "https": 443}


def local_token(chosen: Chosen, server: httpx2.URL) -> str:
    """Return the token beside the database, for this server.

    Raises:
        ConfigError: The token file does not exist. Or the token file was not set with an option, and the server is on
            another host whose address the servers of this database have not recorded.
    """
    path = token_path(chosen.settings)
    if not (_is_named(chosen) or is_loopback(server.host) or _is_recorded(path, server)):
        raise ConfigError(
            f"the local token is not sent to {server.host}: no server of this database has recorded that address",
            hint="Give a token of that server with --token or BACKSTAY_TOKEN, or its file with --token-file.",
        )
    secret = read_token(path)
    if secret is None:
        raise ConfigError(
            f"there is no token at {path}", hint="Give one with --token, or name the server's file with --token-file."
        )
    return secret


def _is_named(chosen: Chosen) -> bool:
    """Whether --token-file was given. In the settings, token_file is only where the local server writes its own."""
    source = chosen.sources["token_file"]
    return source == "flag"


def _is_recorded(path: Path, server: httpx2.URL) -> bool:
    try:
        return _origin(server) in {_origin(httpx2.URL(origin)) for origin in recorded_origins(path)}
    except httpx2.InvalidURL:
        return False


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host.lower(), url.port or _PORTS.get(url.scheme)
