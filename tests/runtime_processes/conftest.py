"""Where these tests put their files, how often they throw dice, and who looks at what is left: as the crash suite."""

from tests.crash.conftest import auditor, desk, rounds

__all__ = ["auditor", "desk", "rounds"]
