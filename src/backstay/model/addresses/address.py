"""The origin of a message: a chat, or a workspace.

An address is a value with named parts. Its spelling is for people and parses back to the same parts; its key is for
indexes.
"""

import os
from datetime import UTC, date, datetime
from functools import cached_property
from hashlib import sha256
from typing import ClassVar, Literal, Self

import msgspec

from backstay.errors import InvalidAddress
from backstay.model.addresses.spelling import check_part, read_part, read_path, spell_part, spell_path
from backstay.model.addresses.workspace_path import canonical_path, check_path, located_path, plain_path

Family = Literal["chat", "workspace"]
Mode = Literal["project", "sentinel"]
AgentKind = Literal["sub", "instance", "display", "name"]

_MODES: dict[str, Mode] = {"project": "project", "sentinel": "sentinel"}
_AGENT_KINDS: dict[str, AgentKind] = {"sub": "sub", "instance": "instance", "display": "display", "name": "name"}
_WORKSPACE_FIELDS = ("mode", "scope", "agent", "host")
_DEFAULT_AGENT = "default"
_MAIN = "main"


class AgentPart(msgspec.Struct, frozen=True, kw_only=True):
    """The agent of a workspace address. The id "X" and the display name "X" are different agents.

    Args:
        kind: "sub" (sub-agent id), "instance" (instance id), "display" (display name) or "name".
        value: The id or name.

    Raises:
        InvalidAddress: The kind is unknown, or the value is empty, too long or not text.
    """

    kind: AgentKind
    value: str

    def __post_init__(self) -> None:
        _check_agent_kind(self.kind)
        check_part("agent", self.value)


class AgentIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The names by which a caller identifies its agent. The most specific name becomes the agent part.

    Args:
        sub_id: The id of a sub-agent.
        instance_id: The id of this instance of the agent.
        display_name: Its display name.
        name: Its plain name.

    Raises:
        InvalidAddress: A name is empty, too long or not text.
    """

    sub_id: str | None = None
    instance_id: str | None = None
    display_name: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        _check_known("agent.sub_id", self.sub_id)
        _check_known("agent.instance_id", self.instance_id)
        _check_known("agent.display_name", self.display_name)
        _check_known("agent.name", self.name)

    @property
    def part(self) -> AgentPart | None:
        """The first given one of sub-agent id, instance id, display name and name; None if none is given."""
        if self.sub_id is not None:
            return AgentPart(kind="sub", value=self.sub_id)
        if self.instance_id is not None:
            return AgentPart(kind="instance", value=self.instance_id)
        if self.display_name is not None:
            return AgentPart(kind="display", value=self.display_name)
        return None if self.name is None else AgentPart(kind="name", value=self.name)


class Address(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The origin of a message. Create one with `Address.chat`, `Address.workspace` or `Address.parse`."""

    family: ClassVar[Family]

    def __post_init__(self) -> None:
        raise TypeError("create an address with Address.chat, Address.workspace or Address.parse")

    @staticmethod
    def chat(
        platform: str,
        kind: str,
        *,
        chat: str,
        thread: str | None = None,
        user: str | None = None,
        account: str | None = None,
        profile: str = _MAIN,
    ) -> "ChatAddress":
        """The address of a chat on a platform.

        Args:
            platform: The platform, for example "telegram".
            kind: The kind of chat on that platform, for example "dm" or "group".
            chat: The platform's id of the chat.
            thread: A thread in the chat, if it has a session of its own.
            user: A user in the chat, if each has a session of their own.
            account: The account of the bot, if there are several.
            profile: The profile of the agent.

        Raises:
            InvalidAddress: A part is invalid; the error names it.
        """
        return ChatAddress(
            platform=platform, kind=kind, chat=chat, thread=thread, user=user, account=account, profile=profile
        )

    @staticmethod
    def workspace(
        path: str | os.PathLike[str],
        *,
        mode: Mode = "project",
        scope: str | date,
        agent: AgentIdentity | str | None = None,
        host: str | None = None,
    ) -> "WorkspaceAddress":
        """The address of an agent that works in a directory: the same for every way to write its path.

        Args:
            path: The directory. Links are followed, so the disk is read; it need not exist.
            mode: "project" for one run of the caller, "sentinel" for one day.
            scope: The caller's run id; in `sentinel` mode the day: a date, "YYYY-MM-DD", or an aware datetime, whose
                day in UTC counts.
            agent: The agent, or its plain name; None means any agent in this directory.
            host: The machine; None means this one.

        Raises:
            InvalidAddress: A part is invalid, or the path cannot be resolved.
        """
        part = _agent_part(agent)
        text = _scope(mode, scope)
        return WorkspaceAddress(path=canonical_path(path), mode=mode, scope=text, agent=part, host=host)

    @staticmethod
    def parse(spelling: str) -> "Address":
        """Parse an address in its canonical spelling. Does not read the disk.

        Args:
            spelling: An address in its canonical spelling.

        Raises:
            InvalidAddress: It is not an address, or its spelling is not canonical.
        """
        if type(spelling) is not str:
            raise InvalidAddress("spelling", f"is of type {type(spelling).__name__}, not text")
        address = _read(spelling)
        if address.spelling != spelling:
            raise InvalidAddress("spelling", "is not canonical", hint=f"Write {address.spelling}")
        return address

    @staticmethod
    def given(spelling: str, *, host: str, follow_links: bool) -> "Address":
        """Parse an address that a client wrote. `host` is the name of this machine.

        The path of a workspace address of this machine may be written in any way, as for `Address.workspace`, except
        with `~`.

        Args:
            spelling: The text of the client. Everything but the path must be canonical, as for `Address.parse`.
            host: The name of this machine in addresses. An address that names another one is only parsed.
            follow_links: Read the disk, and take the real path of the directory. Otherwise the path is only normalised,
                so that a client cannot learn where a link leads.

        Raises:
            InvalidAddress: It is not an address, or another part than its path is not canonical.
        """
        if type(spelling) is str and spelling.startswith("workspace://"):
            where, _, query = spelling.removeprefix("workspace://").partition("?")
            if _read_fields(query, *_WORKSPACE_FIELDS).get("host", host) == host:
                path = read_path(where)
                located = located_path(path) if follow_links else plain_path(path)
                spelling = f"workspace://{spell_path(located)}?{query}"
        return Address.parse(spelling)

    @cached_property
    def spelling(self) -> str:
        """The canonical spelling. No other address has the same one."""
        return self._spell()

    @property
    def key(self) -> str:
        """The SHA-256 of the spelling, in 64 hexadecimal digits."""
        return sha256(self.spelling.encode()).hexdigest()

    @property
    def place(self) -> str:
        """The value that lists filter by, besides the family: the platform, or the path of the workspace."""
        raise NotImplementedError

    def on(self, host: str) -> Self:
        """This address with a host, if its family has hosts and it does not name one yet."""
        return self

    def __str__(self) -> str:
        return self.spelling

    def _spell(self) -> str:
        raise NotImplementedError


class ChatAddress(Address, frozen=True, kw_only=True):
    """A chat on a platform.

    Attributes:
        platform: The platform, for example "telegram".
        kind: The kind of chat on that platform.
        chat: The platform's id of the chat.
        thread: A thread of the chat with a session of its own.
        user: A user of the chat with a session of their own.
        account: The account of the bot.
        profile: The profile of the agent.
    """

    family = "chat"

    platform: str
    kind: str
    chat: str  # type: ignore[assignment]  # the field has the constructor's name, which is never called on a value
    thread: str | None = None
    user: str | None = None
    account: str | None = None
    profile: str = _MAIN

    def __post_init__(self) -> None:
        check_part("platform", self.platform)
        check_part("kind", self.kind)
        check_part("chat", self.chat)
        check_part("profile", self.profile)
        for part, value in self._optional():
            _check_known(part, value)

    @property
    def place(self) -> str:
        return self.platform

    def _spell(self) -> str:
        where = "/".join([spell_part(self.platform), spell_part(self.kind), spell_part(self.chat)])
        return f"chat://{where}{self._spell_query()}"

    def _spell_query(self) -> str:
        fields = [f"{part}={spell_part(value)}" for part, value in self._optional() if value is not None]
        if self.profile != _MAIN:
            fields.append(f"profile={spell_part(self.profile)}")
        return "?" + "&".join(fields) if fields else ""

    def _optional(self) -> tuple[tuple[str, str | None], ...]:
        return ("thread", self.thread), ("user", self.user), ("account", self.account)


class WorkspaceAddress(Address, frozen=True, kw_only=True):
    """An agent that works in a directory, for one run or for one day.

    Attributes:
        path: The absolute, canonical path of the directory.
        mode: "project" (one run) or "sentinel" (one day).
        scope: The run id, or the day as "YYYY-MM-DD".
        agent: The agent; None means any agent in this directory.
        host: The machine; None until `on` sets it.
    """

    family = "workspace"

    path: str
    mode: Mode
    scope: str
    agent: AgentPart | None = None
    host: str | None = None

    def __post_init__(self) -> None:
        check_path(self.path)
        _check_mode(self.mode)
        check_part("scope", self.scope)
        if self.mode == "sentinel":
            _check_day(self.scope)
        if not isinstance(self.agent, AgentPart | None):
            raise InvalidAddress("agent", "is not an AgentPart", hint="Pass AgentIdentity(...).part.")
        _check_known("host", self.host)

    @property
    def place(self) -> str:
        return _workspace_place(self.path)

    def on(self, host: str) -> Self:
        if self.host is not None:
            return self
        # Construct a new value, so that it is checked: older versions of msgspec replace fields without a check.
        return type(self)(path=self.path, mode=self.mode, scope=self.scope, agent=self.agent, host=host)

    def _spell(self) -> str:
        where = f"workspace://{spell_path(self.path)}?mode={self.mode}&scope={spell_part(self.scope)}"
        agent = _DEFAULT_AGENT if self.agent is None else f"{self.agent.kind}:{spell_part(self.agent.value)}"
        host = "" if self.host is None else f"&host={spell_part(self.host)}"
        return f"{where}&agent={agent}{host}"


def workspace_place(path: str | os.PathLike[str]) -> str:
    """The place that is common to the addresses of all agents and runs in this directory. Reads the disk."""
    return _workspace_place(canonical_path(path))


def _workspace_place(path: str) -> str:
    try:
        path.encode()
    except UnicodeEncodeError:
        # A database column cannot hold such a path as text. It can hold its spelling, and no path starts like that.
        return f"workspace://{spell_path(path)}"
    return path


def _agent_part(agent: AgentIdentity | str | None) -> AgentPart | None:
    if isinstance(agent, AgentIdentity):
        return agent.part
    return None if agent is None else AgentPart(kind="name", value=agent)


def _scope(mode: Mode, scope: str | date) -> str:
    _check_mode(mode)
    if not isinstance(scope, date):
        return scope
    if mode != "sentinel":
        raise InvalidAddress("scope", "is a day, but the mode is 'project'", hint="Pass the id of the run.")
    return _utc_day(scope) if isinstance(scope, datetime) else scope.isoformat()


def _utc_day(moment: datetime) -> str:
    if moment.utcoffset() is None:
        raise InvalidAddress("scope", "is a time without time zone", hint="Pass datetime.now(UTC), or a date.")
    try:
        return moment.astimezone(UTC).date().isoformat()
    except OverflowError:
        raise InvalidAddress("scope", "is a time whose day in UTC is out of range") from None


def _check_day(scope: str) -> None:
    try:
        day = date.fromisoformat(scope).isoformat()
    except ValueError:
        day = ""
    if day != scope:
        raise InvalidAddress("scope", "is not a day", hint="In 'sentinel' mode pass a date or 'YYYY-MM-DD'.")


def _check_known(part: str, value: str | None) -> None:
    if value is not None:
        check_part(part, value)


def _check_agent_kind(kind: object) -> None:
    if not isinstance(kind, str) or kind not in _AGENT_KINDS:
        raise InvalidAddress("agent", "has an unknown kind", hint=f"Use one of {', '.join(_AGENT_KINDS)}.")


def _check_mode(mode: object) -> None:
    if not isinstance(mode, str) or mode not in _MODES:
        raise InvalidAddress("mode", "is unknown", hint=f"Use one of {', '.join(_MODES)}.")


def _read(spelling: str) -> Address:
    family, _, rest = spelling.partition("://")
    where, _, query = rest.partition("?")
    if family == "chat":
        return _read_chat(where, _read_fields(query, "thread", "user", "account", "profile"))
    if family == "workspace":
        return _read_workspace(where, _read_fields(query, *_WORKSPACE_FIELDS))
    raise InvalidAddress("family", "is unknown", hint="An address starts with chat:// or workspace://")


def _read_fields(query: str, *known: str) -> dict[str, str]:
    fields = {}
    for field in query.split("&") if query else ():
        part, _, value = field.partition("=")
        if part not in known:
            raise InvalidAddress("spelling", f"has an unknown field {part[:40]!r}", hint=f"Known: {', '.join(known)}.")
        fields[part] = read_part(part, value)
    return fields


def _read_chat(where: str, fields: dict[str, str]) -> ChatAddress:
    segments = where.split("/")
    if len(segments) != 3:
        raise InvalidAddress("spelling", f"has {len(segments)} segments", hint="Write chat://platform/kind/chat")
    platform, kind, chat = map(read_part, ("platform", "kind", "chat"), segments)
    return ChatAddress(platform=platform, kind=kind, chat=chat, **fields)


def _read_workspace(where: str, fields: dict[str, str]) -> WorkspaceAddress:
    for part in ("mode", "scope", "agent"):
        if part not in fields:
            raise InvalidAddress(part, "is missing")
    _check_mode(fields["mode"])
    return WorkspaceAddress(
        path=read_path(where),
        mode=_MODES[fields["mode"]],
        scope=fields["scope"],
        agent=_read_agent(fields["agent"]),
        host=fields.get("host"),
    )


def _read_agent(label: str) -> AgentPart | None:
    if label == _DEFAULT_AGENT:
        return None
    kind, _, value = label.partition(":")
    _check_agent_kind(kind)
    return AgentPart(kind=_AGENT_KINDS[kind], value=value)
