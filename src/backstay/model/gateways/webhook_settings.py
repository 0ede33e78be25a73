"""Settings of webhooks: requests of other programs, and URLs that receive notifications."""

import re
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from backstay.errors import ConfigError
from backstay.model.gateways.notification import NotificationKind
from backstay.model.turn import IfBusy

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class IncomingWebhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another program sends messages to `POST /hooks/NAME`, each signed with a secret.

    The secret is in a file or an environment variable. A path such as `message.text` or `items[0].id` names a value of
    the JSON body.

    Args:
        secret_file: The file with the secret; several lines are several valid secrets.
        secret_env: The environment variable with the secret.
        format: How requests are signed: `standard` (Standard Webhooks), `github` or `stripe`.
        owner: The owner of the sessions; empty: that of the server.
        session: The session that gets the messages: its id.
        address: The address that gets the messages; without both, each webhook has a session of its own.
        conversation: The path of a value that names the conversation. Each one has a session of its own.
        text: The path of the message; empty: the whole body is the message.
        sender: The path of the sender's name, which is put before the message.
        id: The path of a value that is the same whenever a request is repeated; empty: the `webhook-id` header, or the
            whole body.
        agent: The agent that answers; empty: the one that was asked last in the session.
        if_busy: The policy if a turn runs or waits in the session.
        replay_seconds: How far the signed time may be from the server's.
        body_bytes: The maximum size of a body.
    """

    secret_file: str = ""
    secret_env: str = ""
    format: Literal["standard", "github", "stripe"] = "standard"
    owner: str = ""
    session: str = ""
    address: str = ""
    conversation: str = ""
    text: str = ""
    sender: str = ""
    id: str = ""
    agent: str = ""
    if_busy: IfBusy = "enqueue"
    replay_seconds: float = 300.0
    body_bytes: int = 256 << 10


class OutgoingWebhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A URL that receives the notifications of an owner's sessions, by signed requests.

    Args:
        url: The URL. Redirects are not followed.
        secret_file: The file with the secret; with several lines, each request has a signature by each of them.
        secret_env: The environment variable with the secret.
        owner: The owner of the sessions; empty: that of the server.
        events: The kinds of notifications: `turn_ended`, `approval_wanted`, `session_changed`.
        text: Whether requests contain the text of the agent, and the arguments of tool calls.
        retry_seconds: The pause before the second attempt; each further one is twice as long, up to five minutes.
        give_up_seconds: A request that could not be delivered for so long is given up.
    """

    url: str
    secret_file: str = ""
    secret_env: str = ""
    owner: str = ""
    events: tuple[NotificationKind, ...] = ("turn_ended", "approval_wanted")
    text: bool = True
    retry_seconds: float = 1.0
    give_up_seconds: float = 86_400.0


class Webhooks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All webhooks of a server, by name.

    Args:
        incoming: Requests that are received; `webhooks.in` in the file.
        out: URLs that receive notifications.

    Raises:
        ConfigError: A name or a value is not valid.
    """

    incoming: dict[str, IncomingWebhook] = msgspec.field(default_factory=dict, name="in")
    out: dict[str, OutgoingWebhook] = {}

    def __post_init__(self) -> None:
        for kind, hooks in (("in", self.incoming), ("out", self.out)):
            for name, hook in hooks.items():
                _check(f"webhooks.{kind}.{name}", name, hook)

    def described(self) -> tuple[str, ...]:
        """One line for each webhook, without anything secret."""
        return (
            *(f"in {name}" for name in self.incoming),
            *(f"out {name} {shown_url(hook.url)}" for name, hook in self.out.items()),
        )


def shown_url(url: str) -> str:
    """The scheme and the host of a URL: the rest may be secret."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port is not None else ""
    return f"{parts.scheme}://{parts.hostname}{port}/…"


def _check(where: str, name: str, hook: IncomingWebhook | OutgoingWebhook) -> None:
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"{where}: the name is not valid", hint="Use up to 64 of a-z, 0-9, - and _.")
    if bool(hook.secret_file) == bool(hook.secret_env):
        raise ConfigError(f"{where} needs one secret", hint="Set secret_file or secret_env.")
    if isinstance(hook, IncomingWebhook):
        _check_incoming(where, hook)
    else:
        _check_outgoing(where, hook)


def _check_incoming(where: str, hook: IncomingWebhook) -> None:
    if sum(map(bool, (hook.session, hook.address, hook.conversation))) > 1:
        raise ConfigError(f"{where} has several targets", hint="Set one of session, address and conversation.")
    if not 0 < hook.replay_seconds <= 86_400:
        raise ConfigError(f"{where}: replay_seconds is {hook.replay_seconds:g}", hint="Set it to 1 to 86400.")
    if not 0 < hook.body_bytes <= 1 << 20:
        raise ConfigError(f"{where}: body_bytes is {hook.body_bytes}", hint="Set it to 1 to 1048576.")


def _check_outgoing(where: str, hook: OutgoingWebhook) -> None:
    try:
        parts = urlsplit(hook.url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
        good = good and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good:
        raise ConfigError(f"{where}: the url is not valid", hint="Write a URL such as https://hooks.example.org/path.")
    if not hook.events:
        raise ConfigError(f"{where} tells nothing", hint="Name some events, such as turn_ended.")
    if not 0 < hook.retry_seconds <= 300:
        raise ConfigError(f"{where}: retry_seconds is {hook.retry_seconds:g}", hint="Set it to at most 300.")
    if not 0 < hook.give_up_seconds <= 30 * 86_400:
        raise ConfigError(f"{where}: give_up_seconds is {hook.give_up_seconds:g}", hint="Set it to at most 2592000.")
