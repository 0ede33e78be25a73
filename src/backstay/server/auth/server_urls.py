"""The origins under which clients reach a server."""

from backstay.config import Settings


def origins_of(settings: Settings, port: int) -> tuple[str, ...]:
    """The origins under which clients reach this server: one for each allowed host."""
    names = settings.allowed_hosts or (settings.host,)
    return tuple(_origin(name, None if settings.https else port) for name in names)


def _origin(name: str, port: int | None) -> str:
    """The origin of a host name, which may include a port. `port` None means HTTPS, through a proxy."""
    scheme = "https" if port is None else "http"
    if name.count(":") == 1 or "]:" in name:
        return f"{scheme}://{name}"
    host = f"[{name}]" if ":" in name and not name.startswith("[") else name
    return f"{scheme}://{host}" if port is None else f"{scheme}://{host}:{port}"
