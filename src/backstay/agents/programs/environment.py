"""The environment of an agent's program: an allow-list of our variables, and those that were given for it."""

import re
from collections.abc import Iterable, Mapping

from backstay.errors import ConfigError

# The variables that a program needs to run, for the locale and for the network. A star matches any ending.
PASSED_ON = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "XDG_*"),
    *("LANG", "LANGUAGE", "LC_*", "TERM", "COLORTERM", "NO_COLOR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
)
# Variables that give access to the server and the store. They are never passed on, whatever the pattern.
_BACKSTAY_PREFIXES = ("BACKSTAY_", "_BACKSTAY")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?", re.ASCII)


def child_environment(environment: Mapping[str, str], names: Iterable[str], more: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `environment` that are passed on, by default or by these names, and `more`.

    Raises:
        ConfigError: A name is not a valid variable name, or is one of Backstay's own.
    """
    wanted = (*PASSED_ON, *map(_checked, names))
    passed = {name: value for name, value in environment.items() if _is_wanted(name, wanted)}
    return passed | dict(more)


def _is_wanted(name: str, wanted: tuple[str, ...]) -> bool:
    if name.startswith(_BACKSTAY_PREFIXES):
        return False
    return any(name.startswith(one[:-1]) if one.endswith("*") else name == one for one in wanted)


def _checked(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not the name of an environment variable",
            hint="Write a name such as GEMINI_API_KEY, or a pattern such as GOOSE_*.",
        )
    if name.startswith(_BACKSTAY_PREFIXES):
        raise ConfigError(
            f"{name} must not be passed to the environment of an agent",
            hint="Pass only variables that the agent itself reads.",
        )
    return name
