"""The number of examples, and audits of these tests, as in the crash suite."""

from tests.crash.conftest import auditor, rounds

__all__ = ["auditor", "rounds"]
