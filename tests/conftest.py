"""What all tests share.

Hypothesis looks for new counter-examples on every developer's machine; in CI it tries the same ones each time, so that
a change is judged by what it changes. `BACKSTAY_HYPOTHESIS=deep` looks for longer.
"""

import os

from hypothesis import settings

pytest_plugins = ["tests.servers.fixtures", "tests.databases"]

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
