"""What is asked on nobody's behalf: whose a token is, and how much is going on."""

from backstay.model.about import Load
from backstay.model.session import Tidied
from backstay.model.token import Token
from backstay.runtime.desk import Desk
from backstay.store.port import Store


class Unscoped:
    """The few verbs that name no owner, because they are how an owner is found, or only count."""

    def __init__(self, desk: Desk) -> None:
        self._crossing = desk.crossing

    async def holder(self, hash: bytes) -> Token:
        """Whose token has this hash; `NotFound` if it is nobody's, or no longer holds."""
        return await self._crossing.read(self._crossing.store.token, hash)

    async def redeem(self, link: bytes, *, hash: bytes, name: str, seconds: float) -> Token:
        """Spend a link for a browser's token."""
        return await self._crossing.write(Store.redeem, link, hash=hash, name=name, seconds=seconds)

    async def tidy(self, *, keep_closed_for: float | None, fold_after: float) -> Tidied:
        """Close what has expired, delete what was closed for so many seconds, fold old turns, index what was said."""
        store = self._crossing.store
        collected = await self._crossing.read(store.collect, keep_closed_for=keep_closed_for)
        folded = await self._crossing.read(store.fold, older_than=fold_after)
        return Tidied(collected=collected, folded=folded, indexed=await self._crossing.read(store.index))

    async def load(self) -> Load:
        """How many turns run and wait, in whatever process."""
        return await self._crossing.read(self._crossing.store.load)
