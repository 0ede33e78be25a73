"""The declaration of an MCP server whose tools an agent offers to its model."""

import ipaddress
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Literal, get_args
from urllib.parse import urlsplit

import msgspec

from backstay.errors import ConfigError

ToolApproval = Literal["ask", "allow", "deny"]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PREFIX = re.compile(r"[A-Za-z0-9_-]{0,32}", re.ASCII)


class ToolServer(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server: a program that an agent starts, or a URL. Made by `mcp`; an agent connects to it when it is used.

    Attributes:
        name: Its name in logs: the program, or the host of a URL.
        command: The command line of the program; empty for a URL.
        url: The URL; empty for a program.
        token_variable: The environment variable with the token for the URL.
        prefix: The text before the names of its tools.
        approval: Who decides about calls of tools that are not declared read-only.
        env: Variables of the program's environment.
        pass_environment: Names of our variables that the program receives too.
        cwd: The program's working directory.
        start_seconds: How long a connection and the list of tools may take.
        call_seconds: How long a call may take.
        result_bytes: How large a result may be, with its files.
    """

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    token_variable: str = ""
    prefix: str = ""
    approval: ToolApproval = "ask"
    env: Mapping[str, str] = {}
    pass_environment: tuple[str, ...] = ()
    cwd: str = ""
    start_seconds: float = 60.0
    call_seconds: float = 120.0
    result_bytes: int = 8 << 20

    def __repr__(self) -> str:
        return f"mcp({self.name})"


def public_name(server: ToolServer) -> str:
    """Its name in messages that models and clients read. Only the log names the host of a URL."""
    return "an MCP server" if server.url else server.name


def without_host(server: ToolServer, text: str) -> str:
    """The text of an error without the server's URL and its host."""
    return text.replace(server.url, "…").replace(server.name, "…") if server.url else text


def mcp(
    target: str | Sequence[str],
    *,
    prefix: str = "",
    approval: ToolApproval = "ask",
    token_variable: str = "",
    env: Mapping[str, str] | None = None,
    pass_environment: Sequence[str] = (),
    cwd: str | os.PathLike[str] = "",
    start_seconds: float = 60.0,
    call_seconds: float = 120.0,
    result_bytes: int = 8 << 20,
) -> ToolServer:
    """Declare an MCP server whose tools an agent offers to its model. Nothing is started before a turn needs it.

    A call goes through the ledger, like that of any tool. It counts as idempotent if the server declares its tool
    read-only or idempotent, and not destructive.

    Args:
        target: A command line, such as `npx -y @modelcontextprotocol/server-everything`, as text or a list of words; or
            a URL of the streamable HTTP transport. Only a URL of this machine may begin with `http://`. `#VARIABLE` at
            its end names the environment variable with its token.
        prefix: The text before the names of its tools, if two servers have tools of one name.
        approval: "ask": a person approves each call of a tool that is not declared read-only. "allow": no person is
            asked. "deny": only read-only tools are offered.
        token_variable: The environment variable with the token of a URL, which is sent as a bearer token.
        env: Variables for the environment of a program, which has only what programs need, and these.
        pass_environment: Names of our variables that the program receives too, such as "GITHUB_TOKEN" or "AWS_*".
        cwd: The working directory of the program; by default the current one.
        start_seconds: How long the start and the list of tools may take.
        call_seconds: How long a call may take.
        result_bytes: How large a result may be, with its files.

    Returns:
        The declaration, for `tools=` of an agent.

    Raises:
        ConfigError: The target is neither a command nor an acceptable URL, or an option is not valid.
    """
    if approval not in get_args(ToolApproval):
        raise ConfigError(f"approval is {approval!r}", hint="Use 'ask', 'allow' or 'deny'.")
    if not _PREFIX.fullmatch(prefix):
        raise ConfigError(f"prefix is {prefix!r}", hint="Use up to 32 letters, digits, _ and -.")
    if min(start_seconds, call_seconds, result_bytes) <= 0:
        raise ConfigError("a limit of an MCP server is not positive", hint="Leave it out to use the default.")
    url, variable = _url_of(target) if isinstance(target, str) else ("", "")
    command = () if url else _command_of(target)
    variable = token_variable or variable
    if variable and not (url and _VARIABLE.fullmatch(variable)):
        raise ConfigError(
            "token_variable is not the name of an environment variable of a URL's token",
            hint="Write mcp('https://host/mcp', token_variable='HOST_TOKEN'); env= is for programs.",
        )
    return ToolServer(
        name=urlsplit(url).netloc if url else os.path.basename(command[0]),  # noqa: PTH119  # a word, not a path
        command=command,
        url=url,
        token_variable=variable,
        prefix=prefix,
        approval=approval,
        env=dict(env or {}),
        pass_environment=tuple(pass_environment),
        cwd=os.fspath(cwd),
        start_seconds=start_seconds,
        call_seconds=call_seconds,
        result_bytes=result_bytes,
    )


def require_sdk(server: ToolServer) -> None:
    """Raise `ConfigError` unless the SDK is installed and the token of the server is in the environment."""
    if find_spec("mcp") is None:
        raise ConfigError(
            f"the tools of {server.name} need the package mcp, which is not installed",
            hint="Install the extra: pip install 'backstay[mcp]'",
        )
    if server.token_variable and not os.environ.get(server.token_variable):
        raise ConfigError(
            f"the environment variable {server.token_variable} is not set",
            hint=f"Set it to the token for {server.name}.",
        )


def _url_of(target: str) -> tuple[str, str]:
    """Return the URL without its fragment, and the fragment; two empty texts for a command."""
    if not target.lower().startswith(("http://", "https://")):
        return "", ""
    try:
        parts = urlsplit(target)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise ConfigError("the URL of an MCP server is not valid", hint="Write https://host/path.") from error
    if not host or parts.username is not None or parts.password is not None:
        raise ConfigError(
            "the URL of an MCP server has no host, or contains a password",
            hint="Name the variable with its token: https://host/mcp#HOST_TOKEN",
        )
    if parts.scheme == "http" and not _is_loopback(host):
        raise ConfigError(f"http:// would send the calls of {host} unencrypted", hint="Use https://.")
    return parts._replace(fragment="").geturl(), parts.fragment


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _command_of(target: str | Sequence[str]) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(target) if isinstance(target, str) else target)
    except ValueError as error:
        raise ConfigError(f"the command {target!r} is not valid: {error}", hint="Close every quote.") from error
    if not words or not all(isinstance(word, str) for word in words):
        raise ConfigError(f"{target!r} is not an MCP server", hint="Pass a command line or a URL.")
    return words
