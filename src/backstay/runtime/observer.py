"""The observer interface of an open app, for metrics and tracing."""

from backstay.model.turn import OpenTurn, Outcome


class Observer:
    """Called on the event loop after writes and turns. This base class does nothing."""

    def wrote(self, verb: str, seconds: float) -> None:
        """Called after a verb commits; `seconds` is how long the caller waited."""

    def started(self, opened: OpenTurn) -> None:
        """Called when a turn was opened for this process."""

    def ended(self, opened: OpenTurn, outcome: Outcome | None) -> None:
        """Called when a turn is over; `outcome` is None if another process ended it."""
