"""The first token: created when a server first starts, in a file that only its user can read."""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from backstay.config import Settings, usual_database
from backstay.errors import ConfigError, StoreUnavailable
from backstay.server.auth.authenticator import LINK_SECONDS, digest, is_secret, new_secret
from backstay.store import Store, is_postgres, sqlite_path

NAME = "first token"


def token_path(settings: Settings) -> Path:
    """The path of the token: beside the database, or for PostgreSQL in the user's data directory."""
    if settings.token_file:
        return Path(settings.token_file).expanduser()
    if is_postgres(settings.db):
        return usual_database(os.environ).with_name("token")
    database = sqlite_path(settings.db)
    return database.with_name(f"{database.name}.token")


def ensure_token(store: Store, settings: Settings) -> Path:
    """The file of a valid token, created if needed. A revoked token is replaced; concurrent servers share one token."""
    path = token_path(settings)
    while True:
        secret = read_token(path) or _make(path)
        token = store.add_token(owner=settings.owner, name=NAME, hash=digest(secret))
        if token.revoked_at is None:
            return path
        path.unlink(missing_ok=True)


def record_origins(token: Path, origins: Iterable[str]) -> None:
    """Write the server's origins beside the token: clients send the token to no other host.

    Raises:
        StoreUnavailable: The file cannot be written.
    """
    path = _origins_path(token)
    unfinished = path.with_name(f"{path.name}.{token_hex(8)}")
    try:
        file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "w", encoding="utf-8") as writing:
            writing.writelines(f"{origin}\n" for origin in origins)
        unfinished.replace(path)
    except OSError as error:
        raise StoreUnavailable(
            f"cannot write {path}: {error.strerror}", hint="Choose another token file with --token-file."
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)


def recorded_origins(token: Path) -> tuple[str, ...]:
    """The origins that the server of this token recorded; empty if there is no record.

    Raises:
        ConfigError: The file cannot be read, or other users can write it.
    """
    path = _origins_path(token)
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o022:
            raise ConfigError(f"{path} can be written by other users", hint=f"Run: chmod 600 {path}")
        return tuple(path.read_text("utf-8").split())
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="Remove it; the server writes it again.") from error


def _origins_path(token: Path) -> Path:
    return token.with_name(f"{token.name}.origins")


def make_link(store: Store, owner: str) -> str:
    """Create the code of a link that signs in one browser."""
    code = new_secret()
    store.add_token(owner=owner, name="link", hash=digest(code), kind="link", seconds=LINK_SECONDS)
    return code


def read_token(path: Path) -> str | None:
    """The token in this file; None if there is no file.

    Raises:
        ConfigError: The file cannot be read, has no token, or is readable by other users.
    """
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise ConfigError(f"{path} can be read by other users", hint=f"Run: chmod 600 {path}")
        secret = path.read_text("ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="Choose another file with --token-file.") from error
    if not is_secret(secret):
        raise ConfigError(f"{path} contains no token", hint="Remove it; the next start creates a new one.")
    return secret


def _make(path: Path) -> str:
    """Create a token in a new file, atomically. If another process created the file first, return its token."""
    secret = new_secret()
    unfinished = path.with_name(f"{path.name}.{token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "w", encoding="ascii") as writing:
            writing.write(secret + "\n")
        os.link(unfinished, path)
    except FileExistsError:
        return read_token(path) or _make(path)
    except OSError as error:
        raise StoreUnavailable(
            f"cannot write {path}: {error.strerror}", hint="Choose another file with --token-file."
        ) from error
    finally:
        with suppress(OSError):
            unfinished.unlink()
    return secret
