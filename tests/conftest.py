"""Fixtures and settings of all tests.

Hypothesis looks for new counter-examples on every developer's machine; in CI it tries the same ones each time, so that
a change is judged by its effects only. `BACKSTAY_HYPOTHESIS=deep` searches longer. No example has a deadline, because
the machine may be busy.
"""

import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.memory_folder import memory_folder

# Temporary folders lie in memory, where a sync costs nothing. The facts about lost writes use a simulated disk.
if folder := memory_folder():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(folder))

pytest_plugins = [
    "tests.postgres_servers.fixtures",
    "tests.databases",
    "tests.plugins.async_tests",
    "tests.plugins.blocking_calls",
    "tests.plugins.time_limit",
]

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("patient"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "patient")

# A run that was started in the background ignores Ctrl-C, and so would every child that a test sends one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Two processes for each processor: half of the time a test waits for servers and processes of its own."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 2 * processors


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape lone surrogates in captured logs: tests that run side by side send their reports as UTF-8."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report
