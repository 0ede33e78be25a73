"""The interface of a sender of notifications, and how it retries."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from backstay.model.gateways.delivery import PartResult
from backstay.model.gateways.notification import Notification, NotificationKind


class NotificationRetry(msgspec.Struct, frozen=True, kw_only=True):
    """How an outbox retries.

    Attributes:
        first: Seconds before the second attempt; each further pause is twice as long.
        longest: The longest pause, in seconds.
        give_up: A notification that could not be sent for so many seconds is given up.
        takeover: Seconds between two attempts to become the one process that sends.
    """

    first: float = 1.0
    longest: float = 300.0
    give_up: float = 86_400.0
    takeover: float = 2.0

    def pause(self, attempts: int) -> float:
        """The pause after so many attempts, in seconds."""
        return min(self.longest, self.first * 2.0 ** min(attempts - 1, 30))


class NotificationSender(Protocol):
    """Sends notifications to one or several receivers."""

    @property
    def kinds(self) -> tuple[NotificationKind, ...]:
        """The kinds of notifications that it sends."""
        ...

    async def receivers(self, notification: Notification) -> Sequence[int]:
        """The numbers of the receivers of a notification, which are stored in its receipts."""
        ...

    async def send(self, notification: Notification, receiver: int) -> tuple[PartResult, float | None]:
        """Send a notification once. Returns the result, and for how many seconds the receiver asks to wait."""
        ...
