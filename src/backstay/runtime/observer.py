"""The observer interface of an open app, for metrics and tracing."""

from backstay.model.content import ToolCall
from backstay.model.turn import OpenTurn, Outcome


class Observer:
    """Receives the reports of an app about writes, turns and tools in this process; see `App.observe_with`.

    Its methods are called on the event loop, so they must return at once. This base class does nothing: override the
    methods that you need.
    """

    def wrote(self, verb: str, seconds: float) -> None:
        """Called after a write has committed.

        Args:
            verb: The operation, such as `submit` or `checkpoint`.
            seconds: How long its caller waited.
        """

    def started(self, opened: OpenTurn) -> None:
        """Called when a turn starts in this process.

        Args:
            opened: The turn.
        """

    def ended(self, opened: OpenTurn, outcome: Outcome | None) -> None:
        """Called when a turn is over.

        Args:
            opened: The turn, as it was when it started.
            outcome: How it ended; None if another process ended it.
        """

    def tool_started(self, opened: OpenTurn, call: ToolCall) -> None:
        """Called before a tool runs. The intent to call it is stored, and a person has approved it if one must.

        Args:
            opened: The turn.
            call: The call.
        """

    def tool_ended(self, opened: OpenTurn, call: ToolCall) -> None:
        """Called when a tool has returned, raised or was stopped, before its result is stored.

        Args:
            opened: The turn.
            call: The call.
        """
