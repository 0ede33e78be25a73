"""The directories in which agents may work: from the settings, or a safe default."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from backstay.agents.roots import AgentRoots, is_too_wide
from backstay.agents.selection.discovery import ACP
from backstay.config import Settings
from backstay.model.addresses.address import Address, WorkspaceAddress
from backstay.server.http.problems import Refused, forbidden
from backstay.store import is_postgres, sqlite_path


def agent_roots(settings: Settings, local: Sequence[str | os.PathLike[str]] | None = None) -> AgentRoots:
    """The directories in which agents may work.

    Without the setting `agent_roots`, these are `agent_directory` and the directories that the person who runs a
    command named (`local`). A server has no such person (`local` is None). It uses the current directory, unless that
    is the home directory, /, or inside the database's folder.
    """
    database = _database_folder(settings)
    named = (*settings.agent_roots, *((settings.agent_directory,) if settings.agent_directory else ()))
    if settings.agent_roots or (named and local is None):
        return AgentRoots.of(named, database=database)
    if local is None:
        return AgentRoots.of(_current_directory(database), database=database)
    roots = AgentRoots.of(named, database=database)
    # A directory that does not exist is not an error yet: the command may not need it.
    return AgentRoots((*roots.paths, *filter(_is_narrow, map(os.path.realpath, local))), roots.private)


def roots_for_clients(settings: Settings) -> AgentRoots | None:
    """The directories that clients' addresses must respect; None if no agent of this server works in directories."""
    works = any(ACP in (spec[: len(ACP)], spec.partition("=")[2][: len(ACP)]) for spec in settings.agent)
    return agent_roots(settings) if works else None


async def client_address(spelling: str, *, host: str, roots: AgentRoots | None, operator: bool) -> Address:
    """Parse a client's address. A directory of this machine must be one in which agents may work.

    A directory has one session, however its path is written. Symbolic links are resolved for the operator, and for
    every caller if agents work in directories. Otherwise the path is taken literally: the target of a link would reveal
    the content of this disk.

    Raises:
        InvalidAddress: The address is malformed.
        Refused: The directory is outside the allowed ones.
    """
    written = Address.given(spelling, host=host, follow_links=False)
    if not isinstance(written, WorkspaceAddress) or written.on(host).host != host or not (operator or roots):
        return written
    address = await asyncio.to_thread(Address.given, spelling, host=host, follow_links=True)
    real = address.path if isinstance(address, WorkspaceAddress) else written.path
    if roots is not None and await asyncio.to_thread(_first_outside, roots, [real]) is not None:
        raise _outside(written.path)
    return address


async def check_addresses(roots: AgentRoots | None, addresses: Sequence[Address], host: str) -> None:
    """Raise for a directory of this machine in which no agent of this server may work.

    The error does not reveal whether the directory exists or where a link leads.
    """
    if roots is None:
        return
    paths = [one.path for one in addresses if isinstance(one, WorkspaceAddress) and one.on(host).host == host]
    outside = await asyncio.to_thread(_first_outside, roots, paths) if paths else None
    if outside is not None:
        raise _outside(outside)


def _outside(path: str) -> Refused:
    return forbidden(
        f"{path} is outside the directories in which agents may work",
        "Use a directory below one of them; the operator lists them in agent_roots.",
    )


def _first_outside(roots: AgentRoots, paths: Sequence[str]) -> str | None:
    return next((path for path in paths if not roots.allow(os.path.realpath(path))), None)


def _database_folder(settings: Settings) -> Path | None:
    return None if not settings.db or is_postgres(settings.db) else sqlite_path(settings.db).absolute().parent


def _current_directory(database: Path | None) -> tuple[Path, ...]:
    here = Path.cwd().resolve()
    in_database = database is not None and here.is_relative_to(database.resolve())
    return () if in_database or is_too_wide(str(here)) else (here,)


def _is_narrow(real: str) -> bool:
    return not is_too_wide(real)
