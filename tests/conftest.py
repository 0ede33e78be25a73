"""What all tests share.

Hypothesis looks for new counter-examples on every developer's machine; in CI it tries the same ones each time, so that
a change is judged by what it changes. `BACKSTAY_HYPOTHESIS=deep` looks for longer. Nobody is judged by how busy the
machine is: no example has a deadline.
"""

import os
import signal

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.servers.fixtures", "tests.databases"]

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("patient"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "patient")

# A run that was started in the background ignores Ctrl-C, and so would every child that a test sends one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
