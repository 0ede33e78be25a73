"""The first token: made when a server first starts, kept in a file that only its user can read."""

import os
import stat
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from backstay.config import Settings, usual_database
from backstay.errors import ConfigError, StoreUnavailable
from backstay.server.keys import LINK_SECONDS, digest, is_secret, new_secret
from backstay.store import is_postgres, sqlite_path
from backstay.store.port import Store

NAME = "first token"


def token_path(settings: Settings) -> Path:
    """Where the token lies: beside the database, or in the user's data directory."""
    if settings.token_file:
        return Path(settings.token_file).expanduser()
    if is_postgres(settings.db):
        return usual_database(os.environ).with_name("token")
    database = sqlite_path(settings.db)
    return database.with_name(f"{database.name}.token")


def ensure_token(store: Store, settings: Settings) -> Path:
    """The file of a token that holds. One that was revoked is replaced; whoever comes second uses the first one's."""
    path = token_path(settings)
    while True:
        secret = read_token(path) or _make(path)
        token = store.add_token(owner=settings.owner, name=NAME, hash=digest(secret))
        if token.revoked_at is None:
            return path
        path.unlink(missing_ok=True)


def make_link(store: Store, owner: str) -> str:
    """The code of a link that signs one browser in."""
    code = new_secret()
    store.add_token(owner=owner, name="link", hash=digest(code), kind="link", seconds=LINK_SECONDS)
    return code


def read_token(path: Path) -> str | None:
    """The token in this file, which nobody else may read; None if there is none."""
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise ConfigError(f"{path} can be read by others", hint=f"Run: chmod 600 {path}")
        secret = path.read_text("ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="Name another with --token-file.") from error
    if not is_secret(secret):
        raise ConfigError(f"{path} holds no token", hint="Remove it; a new one is made at the next start.")
    return secret


def _make(path: Path) -> str:
    """A new token in a new file, which appears whole or not at all; somebody else's, if they were first."""
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
            f"cannot write {path}: {error.strerror}", hint="Name another with --token-file."
        ) from error
    finally:
        with suppress(OSError):
            unfinished.unlink()
    return secret
