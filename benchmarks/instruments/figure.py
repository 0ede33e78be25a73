"""A figure: one measured number, its limit, and its row in the table."""

from typing import Literal

import msgspec

Verdict = Literal["ok", "OVER", ""]

_NAME, _DETAIL = 46, 44


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A measured number. A figure without a limit is for information; with `exactly`, the limit is the only good value.

    `detail` names the two measured quantities.
    """

    name: str
    value: float
    unit: str = "x"
    limit: float | None = None
    exactly: bool = False
    detail: str = ""

    @property
    def verdict(self) -> Verdict:
        if self.limit is None:
            return ""
        kept = self.value == self.limit if self.exactly else self.value <= self.limit
        return "ok" if kept else "OVER"

    def line(self) -> str:
        """The figure as a row of the table."""
        sign = "=" if self.exactly else "<="
        limit = "" if self.limit is None else f"{sign} {self.limit:g}"
        value = f"{self.value:,.3g}" if self.value < 1000 else f"{self.value:,.0f}"
        return f"  {self.name:<{_NAME}} {value:>8} {self.unit:<6} {limit:>8} {self.verdict:<4}  {self.detail}".rstrip()


def heading() -> str:
    """The heading of the table."""
    return f"  {'figure':<{_NAME}} {'measured':>15} {'limit':>8} {'':<4}  what was measured"


def rule() -> str:
    """The line under the heading."""
    return "  " + "-" * (_NAME + _DETAIL + 38)
