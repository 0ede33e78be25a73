"""Options of a gateway."""

from typing import Literal

import msgspec

from backstay.errors import ConfigError
from backstay.gateways.transcription import Transcription
from backstay.model.turn import IfBusy


class GatewayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Who may write to the agent, and how messages become turns.

    Args:
        allow: The platform's ids of the people and chats that are answered; the only entry `*` means all people.
        pairing: Whether people are let in by a code that is confirmed by the owner, while `allow` is empty.
        approvers: The platform's ids of the people who may decide on every tool call. Others who are allowed by name
            decide on the calls for their own messages.
        agent: The agent that answers; None: the one that was asked last in the session.
        if_busy: What happens to a message while a turn runs, unless the chat or the message says otherwise.
        acknowledge: After so many seconds of waiting, a message to a busy session is acknowledged.
        groups: Whether every message of an allowed group is answered, or only those that name the account.
        members: Whether the members of a group share a session, or each has their own.
        gather_texts: Whether texts that follow each other quickly become one turn, like albums.
        quiet: A gathering ends when no message has come for so many seconds.
        longest: A gathering ends after so many seconds, even without its files.
        transcription: Adds transcripts to audio files; None: they are without.
        previews: Whether chats show answers while they are written.
        preview_seconds: Seconds between two changes of a preview; None: as the platform advises.
        max_age: A part of an answer that could not be sent for so many seconds is given up.
        retry: Seconds between two attempts, at first; each further one waits longer.
        takeover: Seconds between two attempts to become the poller.
        recheck: Seconds between two reads of the admitted people.

    Raises:
        ConfigError: A value is not valid.
    """

    allow: frozenset[str] = frozenset()
    pairing: bool = False
    approvers: frozenset[str] = frozenset()
    agent: str | None = None
    if_busy: IfBusy = "enqueue"
    acknowledge: float = 1.0
    groups: Literal["mentioned", "all"] = "mentioned"
    members: Literal["shared", "own"] = "shared"
    gather_texts: bool = False
    quiet: float = 1.5
    longest: float = 60.0
    transcription: Transcription | None = None
    previews: bool = True
    preview_seconds: float | None = None
    max_age: float = 86_400.0
    retry: float = 1.0
    takeover: float = 2.0
    recheck: float = 1.0

    def __post_init__(self) -> None:
        if "*" in self.allow and len(self.allow) > 1:
            raise ConfigError("the list of allowed people has * and others", hint="Give * alone, or no *.")
        if "*" in self.approvers:
            raise ConfigError("approvers has *", hint="Name the people who may approve.")
        if self.if_busy not in ("enqueue", "steer", "replace", "fork"):
            raise ConfigError(f"if_busy is {self.if_busy!r}", hint="Use enqueue, steer, replace or fork.")
        for name in ("acknowledge", "quiet", "longest", "max_age", "retry", "takeover", "recheck"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)!r}", hint="Give seconds, more than 0.")
        if self.preview_seconds is not None and not self.preview_seconds > 0:
            raise ConfigError(
                f"preview_seconds is {self.preview_seconds!r}", hint="Give seconds, more than 0, or none."
            )

    def allows(self, sender: str, chat: str) -> bool:
        """Whether this person, or each person in this chat, is answered."""
        return "*" in self.allow or sender in self.allow or chat in self.allow
