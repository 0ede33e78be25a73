"""Tools for tests of programs that use Backstay: a clock that is moved by hand.

Nothing else in Backstay imports this package.
"""

from backstay.testing.manual_clock import ManualClock

__all__ = ["ManualClock"]
