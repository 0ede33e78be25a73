"""A witness: told what happens in an open app, for those who count and trace."""

from backstay.model.turn import OpenTurn, Outcome


class Witness:
    """Hears of writes and turns, on the event loop, after they happened. This one takes no notice."""

    def wrote(self, verb: str, seconds: float) -> None:
        """A verb was committed; so long its caller waited for that."""

    def started(self, turn: OpenTurn) -> None:
        """A turn was opened for this process."""

    def ended(self, turn: OpenTurn, outcome: Outcome | None) -> None:
        """It is over, with this outcome; None if somebody else has ended it."""
