"""The account of the test servers: PostgreSQL rejects root, so root borrows an account without rights."""

import functools
import os
import pwd
from pathlib import Path
from typing import NamedTuple, TypedDict


class Drop(TypedDict, total=False):
    """Arguments with which `subprocess` becomes another user; empty if there is no need."""

    user: int
    group: int
    extra_groups: list[int]


class Account(NamedTuple):
    """An unprivileged user of this machine."""

    uid: int
    gid: int

    def drop(self) -> Drop:
        """How `subprocess` becomes this user."""
        return Drop(user=self.uid, group=self.gid, extra_groups=[]) if os.geteuid() == 0 else Drop()

    def give(self, folder: Path) -> None:
        """Give a folder to this user, who alone has access to it."""
        if os.geteuid() == 0:
            os.chown(folder, self.uid, self.gid)


@functools.cache
def account() -> Account:
    """The current user; or, for root, an existing account for such purposes. Nothing on the machine is changed."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise RuntimeError("PostgreSQL does not run as root, and there is no user `postgres` or `nobody`: run as yourself.")
