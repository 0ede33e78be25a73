"""A clock that stands still until it is moved."""


class ManualClock:
    """Both clocks under the test's control. Give the same one to every store that should share a machine."""

    def __init__(self, now: int = 1_800_000_000_000, boot: int = 5_000_000, boot_id: str = "boot-1") -> None:
        self._now, self._boot, self._boot_id = now, boot, boot_id

    @property
    def boot_id(self) -> str:
        return self._boot_id

    def now(self) -> int:
        return self._now

    def boot(self) -> int:
        return self._boot

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        self._now += round(seconds * 1000)
        self._boot += round(seconds * 1000)

    def set_wall(self, now: int) -> None:
        """Set the wall clock, as a person or a time server might; the boot clock does not notice."""
        self._now = now

    def reboot(self) -> None:
        """Start the machine again: the boot clock begins anew under another name."""
        self._boot, self._boot_id = 0, self._boot_id + "+"
