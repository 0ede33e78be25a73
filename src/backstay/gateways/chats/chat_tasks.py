"""Commands that take a while: compaction, and the continuation of an interrupted answer.

The message is stored with a notice first. The work follows; if the gateway stops before its end, the notice says so.
"""

from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from backstay.errors import BackstayError, LeaseLost, NotFound, NothingToDo, StoreError
from backstay.gateways.chats.notice_delivery import NoticeDelivery
from backstay.gateways.chats.notice_texts import problem_text, task_notice
from backstay.gateways.platform import IncomingMessage
from backstay.gateways.poller_tasks import PollerTasks
from backstay.model.gateways.notice import NewNotice, NoticeText
from backstay.model.session import SessionInfo
from backstay.model.turn import Interrupted
from backstay.store import commands
from backstay.store.commands.gateways import notice_commands


class ChatTask(msgspec.Struct, frozen=True):
    """Work that a command asks for: its notice, and the work, which returns what the notice says in the end."""

    notice: NewNotice
    work: Callable[[], Awaitable[str]]


class ChatTasks:
    """The work that commands of one poller ask for."""

    def __init__(self, tasks: PollerTasks, notices: NoticeDelivery) -> None:
        self._tasks, self._notices = tasks, notices
        self._app, self._proof = tasks.app, tasks.proof

    async def can_resume(self, session: SessionInfo) -> bool:
        """Whether the last turn of a session was interrupted, and nothing runs after it."""
        if session.running is not None:
            return False
        try:
            last = await self._app.run(commands.last_turn(session.id, owner=session.owner))
        except (NotFound, NothingToDo):
            return False
        return isinstance(last.outcome, Interrupted)

    def compact(self, message: IncomingMessage, session: SessionInfo, focus: str) -> ChatTask:
        """Summarise the older messages of a session."""

        async def work() -> str:
            before = session.length
            await self._app.handle(session.id).compact(focus=focus)
            after = (await self._app.run(commands.session(session.id, owner=session.owner))).length
            return f"⇲ summarised: {before} messages are {after} now" if after < before else "⇲ nothing to summarise"

        return self._expected(ChatTask(task_notice(message, "⇲ summarising the older messages"), work))

    def resume(self, message: IncomingMessage, session: SessionInfo) -> ChatTask:
        """Continue the interrupted last turn of a session."""

        async def work() -> str:
            await self._app.handle(session.id).resume()
            return "▶ continued"

        return self._expected(ChatTask(task_notice(message, "▶ continuing the interrupted answer"), work))

    def start(self, task: ChatTask) -> None:
        """Do the work of a stored notice."""
        self._tasks.start(task.notice.name, partial(self._do, task))

    def _expected(self, task: ChatTask) -> ChatTask:
        # Before the notice is stored: what is not in this set belongs to a gateway that stopped.
        self._notices.working.add(task.notice.name)
        return task

    async def _do(self, task: ChatTask) -> None:
        try:
            text = await task.work()
        except (LeaseLost, StoreError):
            raise
        except BackstayError as error:
            text = problem_text(error)
        await self._tasks.persist("the end of a command", partial(self._tell, task, text))
        self._notices.working.discard(task.notice.name)

    async def _tell(self, task: ChatTask, text: str) -> bool:
        notice = await self._app.run(notice_commands.add_notice(self._proof, task.notice))
        revised = notice_commands.revise_notice(self._proof, notice.id, NoticeText(text), phase="ended", final=True)
        await self._app.run(revised)
        self._notices.wake()
        return True
