"""A clock that several processes share and only the test moves."""

import struct
from pathlib import Path

_FORM = struct.Struct("<q")
_NOW = 1_800_000_000_000
_BOOT = 5_000_000


class SharedClock:
    """Both clocks stand still until `advance`; every process that opens the same file reads the same time."""

    boot_id = "boot-1"

    def __init__(self, file: Path) -> None:
        self._file = file

    def now(self) -> int:
        return _NOW + self._passed()

    def boot(self) -> int:
        return _BOOT + self._passed()

    def advance(self, seconds: float) -> None:
        """Advance the time for all processes at once."""
        passed = self._passed() + round(seconds * 1000)
        fresh = self._file.with_suffix(".next")
        fresh.write_bytes(_FORM.pack(passed))
        fresh.rename(self._file)

    def _passed(self) -> int:
        return int(_FORM.unpack(self._file.read_bytes())[0]) if self._file.exists() else 0
