"""Titles: asked of a titler after the first turn, and never put over a person's own."""

import logging
from collections.abc import Awaitable, Callable

from backstay.errors import BackstayError
from backstay.model.message import Message
from backstay.model.turn import OpenTurn
from backstay.runtime.desk import Desk
from backstay.store.port import Store

Titler = Callable[[tuple[Message, ...]], Awaitable[str]]

log = logging.getLogger("backstay.runtime")


async def give_title(desk: Desk, turn: OpenTurn, titler: Titler) -> None:
    """Title the turn's session if it has no title yet. A titler that fails costs nothing but its title."""
    crossing = desk.crossing
    try:
        session = await crossing.read(crossing.store.session, turn.session, owner=turn.owner)
        if session.title is not None:
            return
        page = await crossing.read(crossing.store.messages, turn.session, owner=turn.owner, last=20)
        title = await titler(page.messages)
        renamed = await crossing.write(Store.rename, turn.session, title, owner=turn.owner, by="agent")
    except BackstayError as error:
        log.info("session stays without a title", extra={"session": turn.session, "error": str(error)})
    except (Exception, SystemExit):
        # It would end the whole program, and every turn with it.
        log.warning("titler failed", extra={"session": turn.session}, exc_info=True)
    else:
        desk.pulse.tell(turn.session, renamed.last_event)
