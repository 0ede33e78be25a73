"""Where the database is: the URL a person writes, completed with what keeps anybody from waiting for ever."""

from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from backstay.errors import ConfigError

# A server that is gone is noticed in seconds, not after the hours that TCP allows. What the URL says comes first.
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
# Whatever the environment, the database or the URL says of it: every text must be stored, and read as it was written.
_ALWAYS = {"client_encoding": "UTF8"}
# How many connections a store opens at most, unless its URL says otherwise; with fewer than two, one that is lost could
# not be asked about.
CONNECTIONS = 16
FEWEST, MOST = 2, 1_000
_SECRET = frozenset(
    {"oauth_client_secret", "passfile", "password", "scram_client_key", "scram_server_key", "sslpassword"}
)
_WRITE = "Write postgresql://user@host:5432/database; in a password, %40 for @, %2F for / and %25 for %."


class Place:
    """A database, as the driver and as a person may know it, and how many connections to it there may be."""

    def __init__(self, url: str) -> None:
        self.connections, url = _connections(url)
        given = _given(url)
        self.conninfo = make_conninfo(**{**_DEFAULTS, **given, **_ALWAYS})
        self.shown = _shown({name: value for name, value in given.items() if name not in _SECRET})

    def __str__(self) -> str:
        return self.shown


def _connections(url: str) -> tuple[int, str]:
    """What the URL says of the pool, which is ours to know, and the rest, which is the driver's."""
    where, _, query = url.partition("?")
    chosen = parse_qsl(query, keep_blank_values=True)
    sizes = [value for name, value in chosen if name == "connections"]
    if not sizes:
        return CONNECTIONS, url
    if not sizes[-1].isdecimal() or not FEWEST <= int(sizes[-1]) <= MOST:
        raise ConfigError(
            f"connections={sizes[-1]} in the PostgreSQL URL is no size for a pool",
            hint=f"Write a whole number from {FEWEST} to {MOST}, or leave it out for {CONNECTIONS}.",
        )
    # Only our own part is taken out: the driver reads what it is given in its own way.
    rest = "&".join(part for part in query.split("&") if not part.startswith("connections="))
    return int(sizes[-1]), f"{where}?{rest}" if rest else where


def _given(url: str) -> dict[str, str]:
    """What the URL says. What of it cannot be read is not repeated: it may be the password."""
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    except (psycopg.ProgrammingError, UnicodeEncodeError) as error:
        said = str(error).partition('"')[0] if isinstance(error, psycopg.ProgrammingError) else "it is no unicode"
        raise ConfigError(f"the PostgreSQL URL cannot be read: {said.rstrip(': ')}", hint=_WRITE) from None
    if _misread(url, given):
        raise ConfigError("the PostgreSQL URL cannot be read: where its host and port should be are none", hint=_WRITE)
    return given


def _misread(url: str, given: dict[str, str]) -> bool:
    """Whether the rest of a password was taken for a host, a port or a database, all of which are shown."""
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
    places = ",".join(
        quote(host, safe="") + (f":{port}" if port else "") for host, port in zip(hosts, ports, strict=False)
    )
    database = quote(given.pop("dbname", ""), safe="")
    rest = f"?{urlencode(sorted(given.items()))}" if given else ""
    return f"postgresql://{user}{'@' if user else ''}{places}/{database}{rest}"
