"""Settings: read from a file, the environment and command-line flags, in this order."""

import ipaddress
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, get_type_hints

import msgspec

from backstay.errors import ConfigError, InvalidPayload
from backstay.model.gateways.webhook_settings import Webhooks

PREFIX = "BACKSTAY_"
Source = Literal["default", "file", "environment", "flag"]

# The usual addresses of model servers on the local machine.
LOCAL_SERVERS = (
    "Ollama=http://127.0.0.1:11434/v1",
    "LM Studio=http://127.0.0.1:1234/v1",
    "llama.cpp=http://127.0.0.1:8080/v1",
    "vLLM=http://127.0.0.1:8000/v1",
)


class TelegramSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Telegram bot that the server runs, if it has a token."""

    token_file: str = ""
    allow_users: tuple[str, ...] = ()
    allow_chats: tuple[str, ...] = ()
    pairing: bool = True
    approvers: tuple[str, ...] = ()
    agent: str = ""
    if_busy: Literal["enqueue", "steer", "replace", "fork"] = "enqueue"
    groups: Literal["mentioned", "all"] = "mentioned"
    members: Literal["shared", "own"] = "shared"
    gather_texts: bool = False
    previews: bool = True
    transcription_url: str = ""
    transcription_model: str = "whisper-1"
    server: str = "https://api.telegram.org"


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Chat gateways that the server runs."""

    telegram: TelegramSettings = TelegramSettings()


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings. In the environment, the items of a list are separated by commas."""

    db: str = ""
    host: str = "127.0.0.1"
    port: int = 8642
    workers: int = 1
    agent: tuple[str, ...] = ()
    agent_directory: str = ""
    agent_roots: tuple[str, ...] = ()
    agent_environment: tuple[str, ...] = ()
    agent_accepts: tuple[str, ...] = ()
    agent_tools: tuple[str, ...] = ()
    agent_permission: Literal["ask", "allow", "deny"] = "ask"
    demo: bool = False
    debug: bool = False
    reload: bool = False
    titles: bool = True
    probe: tuple[str, ...] = LOCAL_SERVERS
    probe_seconds: float = 0.5
    on_interrupt: Literal["leave", "resume"] = "leave"
    schedules: bool = True
    time_zone: str = ""
    owner: str = "local"
    auth: bool = True
    token_file: str = ""
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    forwarded_allow_ips: tuple[str, ...] = ()
    https: bool = False
    sign_in_days: float = 30.0
    body_bytes: int = 1 << 20
    file_body_bytes: int = 16 << 20
    import_bytes: int = 16 << 30
    import_line_bytes: int = 64 << 20
    transfers: int = 2
    transfers_per_owner: int = 1
    transfer_wait_seconds: float = 5.0
    header_bytes: int = 16 << 10
    head_seconds: float = 30.0
    body_seconds: float = 30.0
    requests_per_second: float = 100.0
    request_burst: int = 200
    running_turns_per_owner: int = 64
    live_agents_per_owner: int = 64
    agent_processes_per_owner: int = 16
    sessions_per_owner: int = 100_000
    stored_bytes_per_owner: int = 10 << 30
    streams: int = 10_000
    streams_per_owner: int = 200
    streams_per_token: int = 20
    sessions_per_stream: int = 100
    heartbeat_seconds: float = 15.0
    slow_reader_seconds: float = 20.0
    grace_seconds: float = 5.0
    notify: bool = True
    keep_closed_days: float = 0.0
    fold_seconds: float = 3_600.0
    upkeep_seconds: float = 300.0
    search_languages: tuple[str, ...] = ()
    compact_tokens: int = 100_000
    webhooks: Webhooks = Webhooks()
    push_services: tuple[str, ...] = ()
    push_contact: str = ""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "text"] = "auto"
    gateways: GatewaySettings = GatewaySettings()


# The description of each setting, for help texts and the reference.
MEANINGS = {
    "db": "The database: a path, or a postgresql:// URL. Without one, backstay.db in the user's data directory.",
    "host": "The address to listen on. An address other than this machine's own needs auth and allowed_hosts.",
    "port": "The port to listen on; 0 selects a free one.",
    "workers": "The number of serving processes.",
    "agent": "The agent: [name=]module:attribute, URL#model, acp:command, or scripted. Several agents need names.",
    "agent_directory": "The directory in which an ACP agent works if its session has none. Without either, turns fail.",
    "agent_roots": "Directories in which an ACP agent may work, besides agent_directory. Without either: the current "
    "directory, unless it is /, the home directory or that of the database.",
    "agent_environment": "Further environment variables for an ACP agent, such as GEMINI_API_KEY or GOOSE_*.",
    "agent_accepts": "Media types of files that the model of a URL reads, such as image/*; text files always are. "
    "Without it: the types that the provider is known to read.",
    "agent_tools": "MCP servers for the agent of a URL: command lines and URLs. #VARIABLE at the end of a URL names "
    "the environment variable with its token.",
    "agent_permission": "The answer when an ACP agent, or a tool of an MCP server that is not read-only, needs "
    "permission: ask (a person), allow or deny.",
    "probe": "The addresses of local model servers that are tried when no agent is named.",
    "probe_seconds": "How long this search for model servers may take.",
    "on_interrupt": "Whether a turn whose process died is left for a person (leave), or resumed at once (resume).",
    "schedules": "Whether this server sends the messages of schedules at their due times.",
    "time_zone": "The time zone of schedules that name none, such as Europe/Zurich. Without it, the machine's.",
    "owner": "The owner of the first token.",
    "auth": "Whether requests need a token. It can be off only on a loopback address.",
    "token_file": "The file of the first token. Without it: beside the SQLite file, or in the user's data directory.",
    "allowed_hosts": "The host names that clients may use. Without any, those of this machine.",
    "allowed_origins": "Other origins whose pages may send requests, with a token: https://app.example.org",
    "forwarded_allow_ips": "Addresses or networks of proxies whose X-Forwarded-For header is trusted.",
    "https": "Whether clients connect by HTTPS, through a proxy: cookies are then sent only by HTTPS.",
    "sign_in_days": "How long a browser stays signed in.",
    "body_bytes": "The maximum size of a request body.",
    "file_body_bytes": "The maximum size of a request body with images or files, under /v1.",
    "import_bytes": "The maximum size of an imported document. It is received into a temporary file.",
    "import_line_bytes": "The maximum size of one line of it, or of a document of an older format; kept in memory.",
    "transfers": "How many exports and imports each worker runs at once.",
    "transfers_per_owner": "How many of these for one owner.",
    "transfer_wait_seconds": "How long another export or import waits before it is rejected with 503.",
    "header_bytes": "The maximum size of a request head.",
    "head_seconds": "How long a client may take to send a request head.",
    "body_seconds": "How long a client may take to send a request body.",
    "requests_per_second": "Requests per second from one owner, or one unauthenticated address, to each worker.",
    "request_burst": "How many requests they may send at once.",
    "running_turns_per_owner": "How many turns of one owner run at once; further ones wait.",
    "live_agents_per_owner": "How many live agents are kept for one owner between turns.",
    "agent_processes_per_owner": "How many programs of ACP agents run for one owner; a turn waits for a free one.",
    "sessions_per_owner": "How many sessions one owner may have; 0 is no limit.",
    "stored_bytes_per_owner": "How many bytes of text and attachments one owner may store; 0 is no limit.",
    "streams": "The maximum number of event streams that a worker keeps open.",
    "streams_per_owner": "How many of these for one owner.",
    "streams_per_token": "How many of them for one token.",
    "sessions_per_stream": "How many sessions one stream may follow.",
    "heartbeat_seconds": "How often a stream without events sends a heartbeat.",
    "slow_reader_seconds": "How long a client may accept no bytes before it is disconnected.",
    "grace_seconds": "How long running turns may take to finish when the server stops.",
    "notify": "Whether this process notifies followers of its writes at once; otherwise they poll, a moment later.",
    "keep_closed_days": "After how many days closed sessions are deleted; 0 keeps them forever.",
    "fold_seconds": "After how many seconds the deltas of an ended turn become one row.",
    "upkeep_seconds": "The interval of store maintenance.",
    "search_languages": "Languages whose word forms a search also finds, such as english; only on PostgreSQL. Without "
    "any, the languages of the database stay as they are.",
    "compact_tokens": "The context size of the model: longer windows are compacted after a turn; 0: only on request.",
    "webhooks": "Requests of other programs (webhooks.in.NAME), and URLs that receive notifications "
    "(webhooks.out.NAME): tables in the file, or JSON in the environment.",
    "push_services": "Further push services, besides those of the makers of browsers, as host or host:port.",
    "push_contact": "The address under which push services reach the operator: mailto:admin@example.org, or a URL.",
    "demo": "Whether the scripted agent may crash the server on request, to demonstrate recovery; it restarts.",
    "debug": "Whether clients see the traceback of an agent that raises; only on a server for this machine alone.",
    "reload": "Whether the server restarts its workers when a Python file below the current directory changes.",
    "titles": "Whether a session without a title is named after its first words.",
    "log_level": "The lowest level that is logged: debug, info, warning or error.",
    "log_format": "The log format: json or text; auto is text on a terminal, otherwise json.",
    "gateways.telegram.token_file": "The file with the token of a Telegram bot. Without it, BACKSTAY_TELEGRAM_TOKEN.",
    "gateways.telegram.allow_users": "The ids of people who may write to the bot; * alone means all people. Without "
    "this and allow_chats, people are let in by a code.",
    "gateways.telegram.allow_chats": "The ids of chats in which every member may write to the bot.",
    "gateways.telegram.pairing": "Whether people are let in by a code while no allow-list is set; otherwise none are.",
    "gateways.telegram.approvers": "The ids of people who may decide on every tool call; others decide on their own.",
    "gateways.telegram.if_busy": "What happens to a message while a turn runs: enqueue, steer, replace or fork.",
    "gateways.telegram.agent": "The name of the agent that answers. Without it, the one that was asked last.",
    "gateways.telegram.groups": "Whether the bot answers messages of groups that mention it, or all that it receives.",
    "gateways.telegram.members": "Whether the members of a group share a session, or each has their own.",
    "gateways.telegram.gather_texts": "Whether texts that follow each other quickly become one turn.",
    "gateways.telegram.previews": "Whether chats show answers while they are written.",
    "gateways.telegram.transcription_url": "The address of an endpoint like OpenAI's that adds transcripts to audio "
    "files, such as https://api.openai.com/v1. BACKSTAY_TRANSCRIPTION_KEY has its key.",
    "gateways.telegram.transcription_model": "The model that transcribes.",
    "gateways.telegram.server": "The address of the Bot API; another one for a server of your own.",
}

# The parts of a URL, of a database or a model, that are secret.
_SECRETS = re.compile(r"(?<=://)[^/@#]*@|(?<=[?&]password=)[^&#]*")

# The id of a person, or of a chat, on Telegram.
_CHAT_ID = re.compile(r"-?[1-9][0-9]{0,18}", re.ASCII)

# The specification of the agent that needs no model.
SCRIPTED = "scripted"

# Settings for which 0 has a meaning: a free port, no limit, at once, or never.
_MAY_BE_ZERO = frozenset(
    {
        "sessions_per_owner",
        "stored_bytes_per_owner",
        "port",
        "grace_seconds",
        "keep_closed_days",
        "fold_seconds",
        "compact_tokens",
    }
)


# Variables that are not settings: the settings file, the chat's server and token, a model server's and a bot's key.
_OTHER_VARIABLES = frozenset(
    f"{PREFIX}{name}" for name in ("CONFIG", "SERVER", "TOKEN", "API_KEY", "TELEGRAM_TOKEN", "TRANSCRIPTION_KEY")
)


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """Settings, and the source of each value; `unknown` are variables with our prefix that have no meaning."""

    settings: Settings
    sources: dict[str, Source]
    file: str | None
    unknown: tuple[str, ...] = ()


def choose(
    flags: Mapping[str, object], environment: Mapping[str, str], *, file: Path | None = None, home: Path | None = None
) -> Chosen:
    """Determine the settings: flags override the environment, which overrides the file, which overrides the defaults.

    Args:
        flags: Values of command-line flags; None means that the flag was not given.
        environment: Variables with the prefix BACKSTAY_.
        file: The settings file; by default BACKSTAY_CONFIG, or config.toml in the user's configuration directory.
        home: The home directory, instead of the user's.

    Raises:
        ConfigError: The file cannot be read, or a value is invalid.
    """
    named = file or _path(environment.get(f"{PREFIX}CONFIG"))
    path = named or _usual_file(environment, home)
    layers: list[tuple[Source, Mapping[str, object]]] = [
        ("file", _read_file(path, must_exist=named is not None)),
        ("environment", _read_environment(environment)),
        ("flag", {name: value for name, value in flags.items() if value is not None}),
    ]
    values: dict[str, object] = {}
    sources: dict[str, Source] = dict.fromkeys(setting_types(), "default")
    for source, layer in layers:
        _settings(layer, str(path) if source == "file" else source)
        values |= layer
        sources |= dict.fromkeys(layer, source)
    values.setdefault("db", str(usual_database(environment, home)))
    settings = _checked(_settings(values, "settings"))
    used = str(path) if path and path.is_file() else None
    return Chosen(settings=settings, sources=sources, file=used, unknown=_unknown(environment))


@cache
def setting_types() -> dict[str, object]:
    """The type of each setting by its name. The name of a setting in a table begins with that of the table."""
    return dict(_types_in(Settings))


def _types_in(table: type[msgspec.Struct], name: str = "") -> Iterator[tuple[str, object]]:
    for field, kind in get_type_hints(table).items():
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind is not Webhooks:
            yield from _types_in(kind, f"{name}{field}.")
        else:
            yield f"{name}{field}", kind


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper().replace(".", "_")


def value_of(settings: Settings, name: str) -> object:
    """The value of a setting."""
    return attrgetter(name)(settings)


def usual_database(environment: Mapping[str, str], home: Path | None = None) -> Path:
    """The default path of the database: in the user's data directory."""
    chosen = Path(environment.get("XDG_DATA_HOME", ""))
    return (chosen if chosen.is_absolute() else _home(home) / ".local" / "share") / "backstay" / "backstay.db"


def _usual_file(environment: Mapping[str, str], home: Path | None) -> Path | None:
    chosen = Path(environment.get("XDG_CONFIG_HOME", ""))
    try:
        folder = chosen if chosen.is_absolute() else _home(home) / ".config"
    except ConfigError:
        return None
    return folder / "backstay" / "config.toml"


def _home(home: Path | None) -> Path:
    try:
        return home or Path.home()
    except RuntimeError as error:
        raise ConfigError("there is no home directory for the database", hint="Name a file with --db.") from error


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _read_file(path: Path | None, *, must_exist: bool) -> Mapping[str, object]:
    if path is None or (not must_exist and not path.is_file()):
        return {}
    try:
        with path.open("rb") as file:
            return dict(_flat(tomllib.load(file)))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", hint="Name another file with --config."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}", hint="Write lines such as port = 8642.") from error


def _flat(table: Mapping[str, object], name: str = "") -> Iterator[tuple[str, object]]:
    """The values of nested tables, by the names of settings."""
    for field, value in table.items():
        if isinstance(value, dict) and any(known.startswith(f"{name}{field}.") for known in setting_types()):
            yield from _flat(value, f"{name}{field}.")
        else:
            yield f"{name}{field}", _texts(value) if name else value


def _texts(value: object) -> object:
    """Ids of chats may be written as numbers in a list of texts."""
    if not isinstance(value, list):
        return value
    return [str(one) if isinstance(one, int) and not isinstance(one, bool) else one for one in value]


def _nested(values: Mapping[str, object]) -> dict[str, object]:
    """The opposite of `_flat`."""
    found: dict[str, Any] = {}  # Any: values and tables
    for name, value in values.items():
        *tables, field = name.split(".")
        table = found
        for one in tables:
            table = table.setdefault(one, {})
        table[field] = value
    return found


def _read_environment(environment: Mapping[str, str]) -> Mapping[str, object]:
    return {
        name: _spelled(environment[variable(name)], kind)
        for name, kind in setting_types().items()
        if variable(name) in environment
    }


def _unknown(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The variables with our prefix that nothing reads. They are no error: Kubernetes sets some for a service."""
    known = _OTHER_VARIABLES.union(map(variable, setting_types()))
    return tuple(sorted(name for name in environment if name.startswith(PREFIX) and name not in known))


def unknown_variables(chosen: Chosen) -> list[str]:
    """One sentence for each unknown variable, with the nearest setting."""
    # Imported here: few environments need it, and every command pays for what this module loads.
    from difflib import get_close_matches  # noqa: PLC0415

    settings = [variable(name) for name in setting_types()]
    found = []
    for name in chosen.unknown:
        near = get_close_matches(name, settings, n=1, cutoff=0.8)
        found.append(f"{name} is not a setting" + (f"; did you mean {near[0]}?" if near else ""))
    return found


def _spelled(text: str, hint: object) -> object:
    """Split the text of a list; other values are converted later, with all settings."""
    if hint == tuple[str, ...]:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if hint is Webhooks:
        return _from_json(text)
    return text


def _from_json(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ConfigError(f"environment: webhooks is not JSON: {error}", hint="Write the table as JSON.") from error


def _settings(values: Mapping[str, object], where: str) -> Settings:
    try:
        return msgspec.convert(_nested(values), Settings, strict=False)
    except msgspec.ValidationError as error:
        message, _, at = str(error).partition(" - at `$.")
        named = f"{at.rstrip('`')}: " if at else ""
        if "`token`" in message:
            hint = "A token is a secret. Write it into a file, and name the file in token_file."
        else:
            hint = "Set it to a valid value." if at else "`backstay config --config /dev/null` lists every setting."
        raise ConfigError(f"{where}: {named}{message}", hint=hint) from error


def _checked(settings: Settings) -> Settings:
    """Return the settings, or raise: insecure settings are rejected, not only logged."""
    for name in setting_types():
        _check_number(name, value_of(settings, name))
    if settings.port > 65_535:
        raise ConfigError(f"port {settings.port} is out of range", hint="Choose 1 to 65535, or 0 for a free one.")
    if settings.probe_seconds > 60:
        raise ConfigError(f"probe_seconds is {settings.probe_seconds:g}", hint="Set it to at most 60.")
    if settings.time_zone:
        _check_zone(settings.time_zone)
    _check_chats(settings.gateways.telegram)
    for proxy in settings.forwarded_allow_ips:
        _check_network(proxy)
    if settings.debug and not (is_loopback(settings.host) and not settings.https and _are_loopback(settings)):
        raise ConfigError(
            "debug is on, but other machines can reach this server: tracebacks may contain messages of users",
            hint="Listen on 127.0.0.1, without https and without other allowed_hosts.",
        )
    if not is_loopback(settings.host):
        if not settings.auth:
            raise ConfigError(
                f"{settings.host} is reachable from other machines and auth is off",
                hint="Leave auth on, or listen on 127.0.0.1.",
            )
        if not settings.allowed_hosts:
            raise ConfigError(
                f"{settings.host} is reachable from other machines and allowed_hosts is empty",
                hint="Name the hosts that clients use: --allowed-host chat.example.org",
            )
    return settings


def _are_loopback(settings: Settings) -> bool:
    """Whether clients may use no host name but those of this machine, so that no proxy serves others."""
    return all(is_loopback(name.rpartition(":")[0] or name) for name in settings.allowed_hosts)


def _check_zone(name: str) -> None:
    # Imported here: few settings name a zone, and every command pays for what this module loads.
    from backstay.model.schedules.local_time import zone_named  # noqa: PLC0415

    try:
        zone_named(name)
    except InvalidPayload as error:
        raise ConfigError(f"time_zone: {error.args[0]}", hint=error.hint) from error


def _check_chats(telegram: TelegramSettings) -> None:
    """Raise unless the allow-lists have ids: a name can change hands. Only the literal * allows all people."""
    allowed = (*telegram.allow_users, *telegram.allow_chats)
    for one in allowed:
        if one != "*" and not _CHAT_ID.fullmatch(one):
            raise ConfigError(
                f"gateways.telegram: {one!r} is not the id of a person or chat on Telegram",
                hint="Write numbers such as 123456789, or -1001234567890 for a group; * alone allows all people.",
            )
    if not all(map(_CHAT_ID.fullmatch, telegram.approvers)):
        raise ConfigError(
            f"gateways.telegram.approvers is {', '.join(telegram.approvers)}", hint="Write the ids of people."
        )
    if "*" in allowed and len(allowed) > 1:
        raise ConfigError("gateways.telegram: * and others are allowed", hint="Write * alone, or no *.")
    if telegram.transcription_url and not telegram.transcription_url.startswith(("https://", "http://")):
        raise ConfigError(
            f"gateways.telegram.transcription_url is {without_secrets(telegram.transcription_url)!r}",
            hint="Write an address such as https://api.openai.com/v1.",
        )
    if not telegram.server.startswith(("https://", "http://")):
        raise ConfigError(
            f"gateways.telegram.server is {without_secrets(telegram.server)!r}",
            hint="Write an address such as https://api.telegram.org.",
        )


def _check_network(text: str) -> None:
    """Raise unless this is an IP address or network: uvicorn would silently trust no proxy under a host name."""
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        raise ConfigError(
            f"forwarded_allow_ips: {text!r} is not an IP address or network",
            hint="Write addresses such as 127.0.0.1 or networks such as 10.0.0.0/8.",
        ) from error


def _check_number(name: str, value: object) -> None:
    """Raise for an invalid number: negative, infinite, not a number, or 0 where 0 has no meaning."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if not (0 < value < math.inf or (value == 0 and name in _MAY_BE_ZERO)):
        least = "0 or more" if name in _MAY_BE_ZERO else "more than 0"
        raise ConfigError(f"{name} is {value:g}", hint=f"Set it to {least}. {MEANINGS[name]}")


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to a server that listens on this host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a host name, such as 127.0.0.1.example.org, can be any machine


def described(chosen: Chosen) -> list[tuple[str, object, Source]]:
    """Every setting with its value, without secrets, and its source."""
    return [(name, _shown(value_of(chosen.settings, name)), chosen.sources[name]) for name in setting_types()]


def _shown(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(map(_shown, value))
    if isinstance(value, Webhooks):
        return value.described()
    return without_secrets(value) if isinstance(value, str) else value


def without_secrets(text: str) -> str:
    """The text without the user names and passwords in its URLs."""
    return _SECRETS.sub(lambda found: "…@" if found[0].endswith("@") else "…", text)


def current(flags: Mapping[str, object], *, file: Path | None = None) -> Chosen:
    """The settings of this process."""
    return choose(flags, os.environ, file=file)
