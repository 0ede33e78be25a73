"""A clock that stands still until it is moved."""


class ManualClock:
    """Both clocks, under the control of a test. Pass the same one to all stores that share a machine.

    Args:
        now: The wall clock, in milliseconds since 1970 (UTC).
        boot: The boot clock, in milliseconds.
        boot_id: The id of the boot of the machine.
    """

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
        """Advance both clocks by this number of seconds."""
        self._now += round(seconds * 1000)
        self._boot += round(seconds * 1000)

    def set_wall(self, now: int) -> None:
        """Set the wall clock to `now`, as a person or a time server might. The boot clock does not change."""
        self._now = now

    def reboot(self) -> None:
        """Restart the machine: the boot clock starts at 0 with another boot id."""
        self._boot, self._boot_id = 0, self._boot_id + "+"
