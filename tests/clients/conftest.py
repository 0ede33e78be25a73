"""The clients that `make clients` installs. Without it, `make test` collects none of these tests."""

import os

collect_ignore_glob = [] if os.environ.get("BACKSTAY_CLIENTS") else ["test_*.py"]
