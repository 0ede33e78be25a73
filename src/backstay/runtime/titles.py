"""Session titles: a titler proposes one after a turn. It replaces no title but the first words of a session."""

import logging
from collections.abc import Awaitable, Callable

from backstay.concurrency.ctrl_c import is_ctrl_c
from backstay.errors import BackstayError
from backstay.model.message import Message
from backstay.model.turn import OpenTurn
from backstay.runtime.task_supervisor import TaskSupervisor
from backstay.store import commands

Titler = Callable[[tuple[Message, ...]], Awaitable[str]]

# The longest title that first words make.
_LONGEST = 60

log = logging.getLogger("backstay.runtime")


async def first_words(messages: tuple[Message, ...]) -> str:
    """The titler without a model: the beginning of the first user message, on one line, cut between words."""
    text = next((message.text for message in messages if message.role == "user" and message.text.strip()), "Untitled")
    line = " ".join(text.split())
    if len(line) <= _LONGEST:
        return line
    return f"{line[: _LONGEST + 1].rpartition(' ')[0] or line[:_LONGEST]}…"


async def give_title(supervisor: TaskSupervisor, opened: OpenTurn, titler: Titler) -> None:
    """Give the turn's session a title if it has none, or only its first words.

    A failing titler is logged and affects nothing else.
    """
    store = supervisor.store
    try:
        session = await store.run(commands.session(opened.session, owner=opened.owner))
        if session.title is not None and (session.title_by != "agent" or titler is first_words):
            return
        page = await store.run(commands.messages(opened.session, owner=opened.owner, last=20))
        if session.title is not None and session.title != await first_words(page.messages):
            return
        title = await titler(page.messages)
        renamed = await store.run(commands.rename(opened.session, title, owner=opened.owner, by="agent"))
    except BackstayError as error:
        log.info("session has no title", extra={"session": opened.session, "error": str(error)})
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        if is_ctrl_c(error):
            raise
        # `SystemExit` would end the whole program, and every turn with it.
        log.warning("titler failed", extra={"session": opened.session, "turn": opened.id}, exc_info=True)
    else:
        supervisor.notifier.publish_result(renamed)
