"""For tests, ours and yours: a clock to move by hand, and the contract that every store must keep.

Nothing else in Backstay imports this package.
"""

from backstay.testing.manual_clock import ManualClock

__all__ = ["ManualClock"]
