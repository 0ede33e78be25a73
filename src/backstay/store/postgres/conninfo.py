"""The database URL, completed with timeouts, so that no connection waits forever."""

from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from backstay.errors import ConfigError

# A lost server is noticed in seconds, not after the hours that TCP allows. The URL overrides these.
_DEFAULTS = {
    "application_name": "backstay",
    "connect_timeout": "5",
    "keepalives": "1",
    "keepalives_count": "3",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "target_session_attrs": "read-write",
    "tcp_user_timeout": "10000",
}
# Overrides the environment, the database and the URL: every text must be stored, and read as it was written.
_ALWAYS = {"client_encoding": "UTF8"}
# The default size of the pool. With fewer than two connections, a lost commit could not be looked up.
CONNECTIONS = 16
FEWEST, MOST = 2, 1_000
_SECRET = frozenset(
    {"oauth_client_secret", "passfile", "password", "scram_client_key", "scram_server_key", "sslpassword"}
)
_WRITE = "Write postgresql://user@host:5432/database; in a password, %40 for @, %2F for / and %25 for %."


class ConnectionTarget:
    """A database: the connection string of the driver, the URL to show to people, and the size of the pool."""

    def __init__(self, url: str) -> None:
        self.connections, url = _connections(url)
        given = _given(url)
        self.conninfo = make_conninfo(**{**_DEFAULTS, **given, **_ALWAYS})
        self.shown = _shown({name: value for name, value in given.items() if name not in _SECRET})

    def __str__(self) -> str:
        return self.shown


def _connections(url: str) -> tuple[int, str]:
    """The size of the pool in the URL, which is our own parameter, and the URL without it for the driver."""
    where, _, query = url.partition("?")
    chosen = parse_qsl(query, keep_blank_values=True)
    sizes = [value for name, value in chosen if name == "connections"]
    if not sizes:
        return CONNECTIONS, url
    if not sizes[-1].isdecimal() or not FEWEST <= int(sizes[-1]) <= MOST:
        raise ConfigError(
            f"connections={sizes[-1]} in the PostgreSQL URL is not a valid pool size",
            hint=f"Write a whole number from {FEWEST} to {MOST}, or leave it out for {CONNECTIONS}.",
        )
    # Only our own part is removed: the driver parses the rest in its own way.
    rest = "&".join(part for part in query.split("&") if not part.startswith("connections="))
    return int(sizes[-1]), f"{where}?{rest}" if rest else where


def _given(url: str) -> dict[str, str]:
    """The parameters of the URL. An error does not quote the unreadable part: it may be the password."""
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    except (psycopg.ProgrammingError, UnicodeEncodeError) as error:
        message = str(error).partition('"')[0] if isinstance(error, psycopg.ProgrammingError) else "not valid Unicode"
        raise ConfigError(f"the PostgreSQL URL cannot be read: {message.rstrip(': ')}", hint=_WRITE) from None
    if _is_misparsed(url, given):
        raise ConfigError("the PostgreSQL URL cannot be read: it has no valid host and port", hint=_WRITE)
    return given


def _is_misparsed(url: str, given: dict[str, str]) -> bool:
    """Whether a part of the password was parsed as a host, port or database, all of which are shown."""
    hosts, ports = given.get("host", "").split(","), given.get("port", "").split(",")
    _, _, path = url.partition("://")[2].partition("?")[0].partition("/")
    return (
        "@" in path
        or any("@" in host[1:] and not host.startswith("/") for host in hosts)
        or not all(port.isdecimal() for port in ports if port)
    )


def _shown(given: dict[str, str]) -> str:
    """The URL without its secrets."""
    user = quote(given.pop("user", ""), safe="")
    hosts = given.pop("host", "").split(",")
    ports = given.pop("port", "").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    addresses = ",".join(
        quote(host, safe="") + (f":{port}" if port else "") for host, port in zip(hosts, ports, strict=False)
    )
    database = quote(given.pop("dbname", ""), safe="")
    rest = f"?{urlencode(sorted(given.items()))}" if given else ""
    return f"postgresql://{user}{'@' if user else ''}{addresses}/{database}{rest}"
