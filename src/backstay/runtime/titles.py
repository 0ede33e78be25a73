"""Session titles: a titler proposes one after a turn. An existing title is never replaced."""

import logging
from collections.abc import Awaitable, Callable

from backstay.errors import BackstayError
from backstay.model.message import Message
from backstay.model.turn import OpenTurn
from backstay.runtime.task_supervisor import TaskSupervisor
from backstay.store import commands

Titler = Callable[[tuple[Message, ...]], Awaitable[str]]

log = logging.getLogger("backstay.runtime")


async def give_title(supervisor: TaskSupervisor, opened: OpenTurn, titler: Titler) -> None:
    """Give the turn's session a title if it has none. A failing titler is logged and affects nothing else."""
    store = supervisor.store
    try:
        session = await store.run(commands.session(opened.session, owner=opened.owner))
        if session.title is not None:
            return
        page = await store.run(commands.messages(opened.session, owner=opened.owner, last=20))
        title = await titler(page.messages)
        renamed = await store.run(commands.rename(opened.session, title, owner=opened.owner, by="agent"))
    except BackstayError as error:
        log.info("session has no title", extra={"session": opened.session, "error": str(error)})
    except (Exception, SystemExit):
        # `SystemExit` would end the whole program, and every turn with it.
        log.warning("titler failed", extra={"session": opened.session, "turn": opened.id}, exc_info=True)
    else:
        supervisor.notifier.publish_result(renamed)
