"""The admission to a gateway. Messages of other people are not read, stored or logged; they may get a code."""

import asyncio
import secrets

from backstay.errors import StoreError
from backstay.gateways.platform import IncomingMessage, Platform, SendDeferred, SendRefused, SendUncertain
from backstay.gateways.poller_tasks import PollerTasks, log
from backstay.store.commands.gateways import pairing_commands

# Without letters and digits that look alike.
_LETTERS = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
# Strangers get so many codes at once, and then one in so many seconds; each of them one in half a minute.
_MOST_AT_ONCE = 5
_SECONDS_FOR_ONE = 6.0
_SECONDS_FOR_ONE_PERSON = 30.0
_MOST_KNOWN = 1_000
# How often strangers may cause a read of the people who were let in.
_MOST_READS = 10
_SECONDS_FOR_ONE_READ = 0.5


class Admission:
    """Decides about each message of one poller before any work is done for it."""

    def __init__(self, tasks: PollerTasks, platform: Platform) -> None:
        self._tasks, self._platform, self._options = tasks, platform, tasks.options
        self._paired: frozenset[str] = frozenset()
        self._read_at: float | None = None
        self._reads = _Bucket(_MOST_READS, _SECONDS_FOR_ONE_READ)
        self._limiter = _CodeLimiter()

    async def admits(self, message: IncomingMessage) -> bool:
        """Whether the message is answered."""
        if message.place.kind != "dm" and not message.to_us and self._options.groups == "mentioned":
            return False
        return await self.allows(message.sender, message.place.chat) or self._turn_away(message)

    async def allows(self, sender: str, chat: str) -> bool:
        """Whether this person may write in this chat. Where something is allowed by the settings, nothing else is."""
        if self._options.allow:
            return self._options.allows(sender, chat)
        if not self._options.pairing:
            return False
        now = asyncio.get_running_loop().time()
        is_recent = self._read_at is not None and now - self._read_at < self._options.recheck
        # Who was let in a moment ago must not wait. Many strangers cannot cause more reads than this.
        if not is_recent or (sender not in self._paired and self._reads.take(now)):
            await self._read_paired(now)
        return sender in self._paired

    async def names(self, sender: str) -> bool:
        """Whether this person is allowed by name or by a code, and not only with a group or by `*`."""
        if self._options.allow:
            return sender in self._options.allow
        return await self.allows(sender, sender)

    def is_approver(self, sender: str) -> bool:
        """Whether this person may decide on every tool call."""
        return sender in self._options.approvers

    async def _read_paired(self, now: float) -> None:
        proof = self._tasks.proof
        people = await self._tasks.app.run(pairing_commands.gateway_people(proof.name, owner=proof.owner))
        self._paired = frozenset(one.person for one in people if one.paired_at is not None)
        self._read_at = now

    def _turn_away(self, message: IncomingMessage) -> bool:
        """Give a code to a person in a private chat, if codes are given and not too many. Always False."""
        gives_codes = self._options.pairing and not self._options.allow and message.place.kind == "dm"
        if gives_codes and self._limiter.allows(message.sender, asyncio.get_running_loop().time()):
            self._tasks.start(f"code for {message.sender}", lambda: self._give_code(message))
        return False

    async def _give_code(self, message: IncomingMessage) -> None:
        proof = self._tasks.proof
        code = "".join(secrets.choice(_LETTERS) for _ in range(8))
        wanted = pairing_commands.give_code(proof, message.sender, message.name[:100], code)
        try:
            given = await self._tasks.app.run(wanted)
            if given is not None and given.code is not None:
                await self._platform.send(message.place, _offer(given.code))
        except (StoreError, SendRefused, SendDeferred, SendUncertain) as error:
            log.warning("%s: a pairing code was not given: %s", proof.name, error)


class _Bucket:
    """So many at once, and then one in so many seconds."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._left, self._at = float(most), 0.0

    def take(self, now: float) -> bool:
        """Take one, if there is one."""
        self._left = min(self._most, self._left + (now - self._at) / self._seconds)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class _CodeLimiter:
    """A bucket for all strangers, and one code in a while for each."""

    def __init__(self) -> None:
        self._bucket = _Bucket(_MOST_AT_ONCE, _SECONDS_FOR_ONE)
        self._last: dict[str, float] = {}

    def allows(self, person: str, now: float) -> bool:
        """Whether this person may ask for a code now."""
        if now - self._last.get(person, -_SECONDS_FOR_ONE_PERSON) < _SECONDS_FOR_ONE_PERSON:
            return False
        if not self._bucket.take(now):
            return False
        if len(self._last) >= _MOST_KNOWN:
            self._last.clear()
        self._last[person] = now
        return True


def _offer(code: str) -> str:
    return (
        "This bot does not know you. Its operator can let you in, in the web UI under Settings, or with\n"
        f"`backstay gateway pair {code[:4]}-{code[4:]}`\n"
        "The code is valid for ten minutes."
    )
