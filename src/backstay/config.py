"""Settings: what an operator may choose, read from a file, the environment and flags, in that order."""

import math
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_type_hints

import msgspec

from backstay.errors import ConfigError

PREFIX = "BACKSTAY_"
Source = Literal["default", "file", "environment", "flag"]

# Where servers of models usually listen on one's own machine.
LOCAL_SERVERS = (
    "Ollama=http://127.0.0.1:11434/v1",
    "LM Studio=http://127.0.0.1:1234/v1",
    "llama.cpp=http://127.0.0.1:8080/v1",
    "vLLM=http://127.0.0.1:8000/v1",
)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set. A list is written with commas in the environment."""

    db: str = ""
    host: str = "127.0.0.1"
    port: int = 8642
    workers: int = 1
    agent: tuple[str, ...] = ()
    agent_directory: str = ""
    agent_permission: Literal["ask", "allow", "deny"] = "ask"
    demo: bool = False
    titles: bool = True
    probe: tuple[str, ...] = LOCAL_SERVERS
    probe_seconds: float = 0.5
    on_interrupt: Literal["leave", "resume"] = "leave"
    owner: str = "local"
    auth: bool = True
    token_file: str = ""
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    https: bool = False
    sign_in_days: float = 30.0
    body_bytes: int = 1 << 20
    import_bytes: int = 64 << 20
    header_bytes: int = 16 << 10
    head_seconds: float = 30.0
    body_seconds: float = 30.0
    requests_per_second: float = 100.0
    request_burst: int = 200
    streams: int = 10_000
    streams_per_owner: int = 200
    streams_per_token: int = 20
    sessions_per_stream: int = 100
    heartbeat_seconds: float = 15.0
    slow_reader_seconds: float = 20.0
    grace_seconds: float = 5.0
    prompt: bool = True
    keep_closed_days: float = 0.0
    fold_seconds: float = 3_600.0
    upkeep_seconds: float = 300.0
    compact_tokens: int = 100_000
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "text"] = "auto"


# What each setting means, for those who read about it.
MEANINGS = {
    "db": "The database: a path, or a postgresql:// URL. Without one, backstay.db in the user's data directory.",
    "host": "Where to listen. Beyond this machine, auth and allowed_hosts are needed.",
    "port": "Where to listen; 0 takes a free one.",
    "workers": "How many processes serve.",
    "agent": "Who answers: [name=]module:attribute, URL#model, acp:command, or scripted. Several need names.",
    "agent_directory": "Where an ACP agent works in sessions that are about no directory. Without one, it does not.",
    "agent_permission": "What an ACP agent hears that asks whether it may use a tool: ask (a person), allow or deny.",
    "probe": "Where a local server of models is looked for when no agent is named.",
    "probe_seconds": "How long all of them together are waited for.",
    "on_interrupt": "What becomes of a turn whose process died: left for a person to retry, or resumed.",
    "owner": "Whose sessions the first token opens.",
    "auth": "Whether a token is needed. Only a server for this machine may go without.",
    "token_file": "Where the first token is kept. Without one, beside the database.",
    "allowed_hosts": "The only names that clients may ask for. Without any, those of this machine.",
    "allowed_origins": "Other sites whose pages may ask.",
    "https": "Whether clients come by HTTPS, through a proxy: cookies are then bound to it.",
    "sign_in_days": "How long a browser stays signed in.",
    "body_bytes": "The longest body of a request.",
    "import_bytes": "The longest session that can be imported.",
    "header_bytes": "The longest head of a request.",
    "head_seconds": "How long a new connection, or one that begins to ask, may take for the head of its request.",
    "body_seconds": "How long a body is waited for.",
    "requests_per_second": "How often one token may ask, in the long run, of each worker.",
    "request_burst": "How many requests it may ask at once.",
    "streams": "How many event streams a worker keeps open.",
    "streams_per_owner": "How many of them for one owner.",
    "streams_per_token": "How many of them for one token.",
    "sessions_per_stream": "How many sessions one stream follows.",
    "heartbeat_seconds": "How often a stream without events says that it is alive.",
    "slow_reader_seconds": "How long a client may take no bytes before it is let go of.",
    "grace_seconds": "How long running turns may take to finish when the server stops.",
    "prompt": "Whether followers are told at once of what this process writes; otherwise they see it a moment later.",
    "keep_closed_days": "After how many days closed sessions are deleted; 0 keeps them for ever.",
    "fold_seconds": "After how many seconds the deltas of an ended turn become one row.",
    "upkeep_seconds": "How often the store is tidied.",
    "compact_tokens": "What the model can read: longer windows are compacted after their turn; 0: only when asked.",
    "demo": "Whether the scripted agent may crash the server on request, which then comes back: to see what is kept.",
    "titles": "Whether a session that nobody named is called by its first words.",
    "log_level": "What is logged: debug, info, warning or error.",
    "log_format": "How it is logged: json or text; auto is text on a terminal and json anywhere else.",
}

# Where a URL, of a database or of a model, has its secrets.
_SECRETS = re.compile(r"(?<=://)[^/@#]*@|(?<=[?&]password=)[^&#]*")

# What the setting `agent` calls the one that needs no model.
SCRIPTED = "scripted"

# Where 0 means something: a free port, at once, or never.
_MAY_BE_NOUGHT = frozenset({"port", "grace_seconds", "keep_closed_days", "fold_seconds", "compact_tokens"})


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """Settings, and where each of them was chosen."""

    settings: Settings
    sources: dict[str, Source]
    file: str | None


def choose(
    flags: Mapping[str, object], environment: Mapping[str, str], *, file: Path | None = None, home: Path | None = None
) -> Chosen:
    """The settings in force: flags beat the environment, which beats the file, which beats the defaults."""
    named = file or _path(environment.get(f"{PREFIX}CONFIG"))
    path = named or _usual_file(environment, home)
    layers: list[tuple[Source, Mapping[str, object]]] = [
        ("file", _read_file(path, must_exist=named is not None)),
        ("environment", _read_environment(environment)),
        ("flag", {name: value for name, value in flags.items() if value is not None}),
    ]
    values: dict[str, object] = {}
    sources: dict[str, Source] = dict.fromkeys(Settings.__struct_fields__, "default")
    for source, layer in layers:
        _settings(layer, str(path) if source == "file" else source)
        values |= layer
        sources |= dict.fromkeys(layer, source)
    values.setdefault("db", str(usual_database(environment, home)))
    settings = _checked(_settings(values, "settings"))
    return Chosen(settings=settings, sources=sources, file=str(path) if path and path.is_file() else None)


def usual_database(environment: Mapping[str, str], home: Path | None = None) -> Path:
    """Where sessions live unless told otherwise: the user's data directory."""
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
        raise ConfigError("there is no home directory to keep sessions in", hint="Name a file with --db.") from error


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _read_file(path: Path | None, *, must_exist: bool) -> Mapping[str, object]:
    if path is None or (not must_exist and not path.is_file()):
        return {}
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", hint="Name another file with --config."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}", hint="Write lines such as port = 8642.") from error


def _read_environment(environment: Mapping[str, str]) -> Mapping[str, object]:
    hints = get_type_hints(Settings)
    return {
        name: _spelled(environment[PREFIX + name.upper()], hints[name])
        for name in Settings.__struct_fields__
        if PREFIX + name.upper() in environment
    }


def _spelled(text: str, hint: object) -> object:
    """A variable's text as the list it stands for; everything else is converted with the rest."""
    if hint == tuple[str, ...]:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text


def _settings(values: Mapping[str, object], where: str) -> Settings:
    try:
        return msgspec.convert(dict(values), Settings, strict=False)
    except msgspec.ValidationError as error:
        said, _, at = str(error).partition(" - at `$.")
        named = f"{at.rstrip('`')}: " if at else ""
        hint = "Give it another value." if at else "`backstay config --config /dev/null` lists every setting."
        raise ConfigError(f"{where}: {named}{said}", hint=hint) from error


def _checked(settings: Settings) -> Settings:
    """The same settings, or a refusal: what is secure is not left to whoever reads the log."""
    for name in Settings.__struct_fields__:
        _check_number(name, getattr(settings, name))
    if settings.port > 65_535:
        raise ConfigError(f"port {settings.port} does not exist", hint="Choose 1 to 65535, or 0 for a free one.")
    if settings.probe_seconds > 60:
        raise ConfigError(f"probe_seconds is {settings.probe_seconds:g}", hint="Choose up to 60.")
    if not is_loopback(settings.host):
        if not settings.auth:
            raise ConfigError(
                f"{settings.host} can be reached by others and auth is off", hint="Leave auth on, or bind 127.0.0.1."
            )
        if not settings.allowed_hosts:
            raise ConfigError(
                f"{settings.host} can be reached by others and no allowed_hosts are named",
                hint="Name the hosts that clients use: --allowed-host chat.example.org",
            )
    return settings


def _check_number(name: str, value: object) -> None:
    """Raise if this is a number by which nothing could wait, count or measure."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if not (0 < value < math.inf or (value == 0 and name in _MAY_BE_NOUGHT)):
        least = "0 or more" if name in _MAY_BE_NOUGHT else "more than 0"
        raise ConfigError(f"{name} is {value:g}", hint=f"Give {least}. {MEANINGS[name]}")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    return host in ("localhost", "::1") or host.startswith("127.")


def described(chosen: Chosen) -> list[tuple[str, object, Source]]:
    """Every setting with its value, but for secrets, and where it comes from."""
    return [(name, _shown(getattr(chosen.settings, name)), chosen.sources[name]) for name in Settings.__struct_fields__]


def _shown(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(map(_shown, value))
    return without_secrets(value) if isinstance(value, str) else value


def without_secrets(text: str) -> str:
    """The text, without the names and passwords that stand in its URLs."""
    return _SECRETS.sub(lambda found: "…@" if found[0].endswith("@") else "…", text)


def current(flags: Mapping[str, object], *, file: Path | None = None) -> Chosen:
    """The settings in force for this process."""
    return choose(flags, os.environ, file=file)
