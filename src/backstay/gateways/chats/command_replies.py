"""Commands of a chat: each is one write, which is stored with the message that asks for it and with its reply."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from backstay.errors import Conflict, InvalidPayload, NotFound, NothingToDo
from backstay.gateways.admission import Admission
from backstay.gateways.chats.button_presses import rights_of
from backstay.gateways.chats.chat_sessions import ChatSessions, title_of
from backstay.gateways.chats.command_menu import BUSY_MEANINGS, BUSY_WORDS, help_text
from backstay.gateways.chats.notice_texts import reply
from backstay.gateways.platform import IncomingMessage
from backstay.gateways.poller_tasks import PollerTasks
from backstay.model.addresses.address import Address
from backstay.model.gateways.notice import (
    ButtonAction,
    ChatSettings,
    ChooseAgent,
    ChooseBusy,
    NewButton,
    NewNotice,
    NoticeText,
    ShowSession,
    may_decide,
)
from backstay.model.session import SessionInfo
from backstay.store import commands
from backstay.store.commands import Write, gateway_commands
from backstay.store.commands.gateways import notice_commands

T = TypeVar("T")

_MOST_AGENTS = 20


class CommandRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A command as it was written: in which message, for which address, and with which argument."""

    message: IncomingMessage
    address: Address
    words: str

    @property
    def destination(self) -> str:
        """Where the reply is shown."""
        return self.message.place.destination


Handler = Callable[[CommandRequest], Awaitable[Write[NewNotice]]]


class CommandReplies:
    """The commands that are one write of the store."""

    def __init__(self, tasks: PollerTasks, admission: Admission) -> None:
        self._app, self._proof, self._options = tasks.app, tasks.proof, tasks.options
        self._admission, self._sessions = admission, ChatSessions(tasks, admission)
        self._handlers: dict[str, Handler] = {
            "help": self._help,
            "new": self._new,
            "sessions": self._list,
            "here": self._here,
            "resume": self._here,
            "mirror": self._mirror,
            "stop": self._stop,
            "undo": self._undo,
            "redo": self._redo,
            "retry": self._retry,
            "fork": self._fork,
            "status": self._status,
            "agent": self._agent,
            "busy": self._busy,
            "approve": self._approve,
            "deny": self._deny,
        }

    async def write(self, command: str, request: CommandRequest) -> Write[NewNotice]:
        """The write of a command, which returns the reply.

        Raises:
            BackstayError: The command does not exist, has a wrong argument, or is not possible now.
        """
        if command in ("queue", "steer", "replace"):
            raise InvalidPayload(
                f"/{command} needs a text", hint=f"Write /{command} and your message, or /busy {command} for all."
            )
        handler = self._handlers.get(command)
        if handler is None:
            raise InvalidPayload(
                f"there is no command /{command}", hint="/help lists the commands; // begins a message with a slash."
            )
        return await handler(request)

    async def session(self, request: CommandRequest) -> SessionInfo:
        """The session that the chat continues. Raises `NothingToDo` if it has none yet."""
        try:
            return await self._app.run(commands.at(request.address, owner=self._proof.owner))
        except NotFound as error:
            raise NothingToDo(
                "this chat has no session yet", hint="Write a message first, or choose one in /sessions."
            ) from error

    # --- sessions ---------------------------------------------------------------------------------------------------

    async def _help(self, request: CommandRequest) -> Write[NewNotice]:
        return self._say(request, help_text())

    async def _new(self, request: CommandRequest) -> Write[NewNotice]:
        started = gateway_commands.start_anew(self._proof, request.address, request.destination)
        return _then(started, lambda _: reply(request.message, NoticeText("A new session. Write a message.")))

    async def _list(self, request: CommandRequest) -> Write[NewNotice]:
        found = await self._sessions.listed(request.message)
        if not found:
            raise NothingToDo("there is no session yet", hint="Write a message: it begins one.")
        lines = [f"{number}. {title_of(session)} · `{session.id[-6:]}`" for number, session in enumerate(found, 1)]
        rows = tuple(
            (NewButton(f"{number} · {title_of(session)}"[:60], self._showing(request, session)),)
            for number, session in enumerate(found, 1)
        )
        content = NoticeText("\n".join(["Which session should this chat continue?", *lines]), rows)
        return self._show(request, content)

    async def _here(self, request: CommandRequest) -> Write[NewNotice]:
        if not request.words:
            return await self._list(request)
        session = await self._sessions.find(request.message, request.words)
        shown = notice_commands.show_session(self._proof, request.address, request.destination, session.id)
        return _then(shown, lambda found: reply(request.message, NoticeText(_continues(found))))

    async def _mirror(self, request: CommandRequest) -> Write[NewNotice]:
        if not request.words:
            raise InvalidPayload(
                "/mirror needs a session",
                hint="/mirror 2 shows the second of /sessions here, too; /mirror off ends it.",
            )
        if request.words.lower() == "off":
            stopped = notice_commands.stop_mirrors(self._proof, request.address, request.destination)
            return _then(stopped, lambda count: reply(request.message, NoticeText(f"No longer shown here: {count}.")))
        session = await self._sessions.find(request.message, request.words)
        shown = notice_commands.mirror_session(self._proof, request.destination, session.id)
        text = f"The answers of **{title_of(session)}** are shown here, too. /mirror off ends it."
        return _then(shown, lambda _: reply(request.message, NoticeText(text)))

    def _showing(self, request: CommandRequest, session: SessionInfo) -> ButtonAction:
        return ShowSession(request.address.spelling, session.id, _continues(session))

    # --- turns ------------------------------------------------------------------------------------------------------

    async def _stop(self, request: CommandRequest) -> Write[NewNotice]:
        session = await self.session(request)
        if session.running is None:
            raise NothingToDo("nothing runs in this session", hint="/status shows what waits.")
        cancelled = commands.cancel(session.running, owner=session.owner)
        return _then(cancelled, lambda _: reply(request.message, NoticeText("⏹ stopping")))

    async def _undo(self, request: CommandRequest) -> Write[NewNotice]:
        session = await self.session(request)
        undone = commands.undo(session.id, owner=session.owner)
        text = "The last turn is undone. /redo brings it back."
        return _then(undone, lambda _: reply(request.message, NoticeText(text)))

    async def _redo(self, request: CommandRequest) -> Write[NewNotice]:
        session = await self.session(request)
        redone = commands.redo(session.id, owner=session.owner)
        return _then(redone, lambda _: reply(request.message, NoticeText("The turn is back.")))

    async def _retry(self, request: CommandRequest) -> Write[NewNotice]:
        session = await self.session(request)
        # The id of the request names the person whose message this is.
        retried = commands.retry(session.id, owner=session.owner, request_id=f"{self._proof.name}/{request.message.id}")
        return _then(retried, lambda _: reply(request.message, NoticeText("Answering again.")))

    async def _fork(self, request: CommandRequest) -> Write[NewNotice]:
        session = await self.session(request)
        forked = notice_commands.fork_here(self._proof, request.address, request.destination, session.id)
        text = f"This chat continues in a copy. /here {session.id[-6:]} returns to the session before."
        return _then(forked, lambda _: reply(request.message, NoticeText(text)))

    async def _status(self, request: CommandRequest) -> Write[NewNotice]:
        session = await self.session(request)
        undecided = await self._app.run(
            notice_commands.undecided_calls(self._proof.name, session.id, owner=session.owner)
        )
        settings = await self._settings(request)
        busy = settings.if_busy or self._options.if_busy
        agent = settings.agent or self._options.agent or session.agent or "default"
        running = "an answer is being written" if session.running is not None else "idle"
        lines = [
            f"**{title_of(session)}**",
            f"`{session.id}`",
            f"{running}, {session.waiting} waiting, {session.turns} turns",
            f"agent {agent}; {BUSY_MEANINGS[busy]}",
            *([f"{len(undecided)} tool calls wait for approval: /approve or /deny"] if undecided else []),
        ]
        return self._say(request, "\n".join(lines))

    # --- settings ---------------------------------------------------------------------------------------------------

    async def _agent(self, request: CommandRequest) -> Write[NewNotice]:
        known = await self._app.run(notice_commands.known_agents(owner=self._proof.owner))
        settings = await self._settings(request)
        if request.words:
            if request.words not in known:
                names = ", ".join(known[:_MOST_AGENTS]) or "none is served yet"
                raise InvalidPayload(f"there is no agent {request.words[:60]!r}", hint=f"Agents: {names}.")
            chosen = ChatSettings(agent=request.words, if_busy=settings.if_busy)
            return self._choose(request, chosen, _agent_chosen(request.words))
        if not known:
            raise NothingToDo("no agent is served yet", hint="Start `backstay serve` with an agent.")
        rows = tuple((NewButton(name[:60], ChooseAgent(name, _agent_chosen(name))),) for name in known[:_MOST_AGENTS])
        now = settings.agent or self._options.agent or "the one that was asked last"
        return self._show(request, NoticeText(f"Which agent answers in this chat? Now: {now}.", rows))

    async def _busy(self, request: CommandRequest) -> Write[NewNotice]:
        settings = await self._settings(request)
        word = request.words.lower()
        if word and word not in BUSY_WORDS:
            raise InvalidPayload(f"/busy does not know {word[:40]!r}", hint=f"Use {', '.join(BUSY_WORDS)}.")
        if word:
            chosen = ChatSettings(agent=settings.agent, if_busy=BUSY_WORDS[word])
            return self._choose(request, chosen, BUSY_MEANINGS[BUSY_WORDS[word]])
        rows = tuple(
            (NewButton(name, ChooseBusy(policy, BUSY_MEANINGS[policy])),) for name, policy in BUSY_WORDS.items()
        )
        now = BUSY_MEANINGS[settings.if_busy or self._options.if_busy]
        return self._show(request, NoticeText(f"What happens to messages while an answer is written? {now}", rows))

    async def _settings(self, request: CommandRequest) -> ChatSettings:
        read = notice_commands.chat_settings(self._proof.name, request.destination, owner=self._proof.owner)
        return await self._app.run(read)

    def _choose(self, request: CommandRequest, chosen: ChatSettings, text: str) -> Write[NewNotice]:
        stored = notice_commands.choose_settings(self._proof, request.destination, chosen)
        return _then(stored, lambda _: reply(request.message, NoticeText(text)))

    # --- approvals --------------------------------------------------------------------------------------------------

    async def _approve(self, request: CommandRequest) -> Write[NewNotice]:
        return await self._decide(request, approved=True)

    async def _deny(self, request: CommandRequest) -> Write[NewNotice]:
        return await self._decide(request, approved=False)

    async def _decide(self, request: CommandRequest, *, approved: bool) -> Write[NewNotice]:
        session, message = await self.session(request), request.message
        waiting = await self._app.run(
            notice_commands.undecided_calls(self._proof.name, session.id, owner=session.owner)
        )
        rights = await rights_of(self._admission, message.sender, message.place)
        mine = [call for call in waiting if may_decide(rights, message.sender, call.person)]
        if not waiting:
            raise NothingToDo("no tool call waits for approval", hint="/status shows what runs.")
        if not mine:
            raise Conflict("this is for the person who asked, or for an approver", hint="Nothing was changed.")
        if len(mine) > 1:
            raise Conflict(f"{len(mine)} tool calls wait for approval", hint="Press the button under the right one.")
        decided = notice_commands.decide_call(self._proof, mine[0].call, approved=approved)
        text = f"{'✅ approved' if approved else '🚫 denied'}: {mine[0].tool}"
        return _then(decided, lambda _: reply(message, NoticeText(text)))

    # --- replies ----------------------------------------------------------------------------------------------------

    def _say(self, request: CommandRequest, text: str) -> Write[NewNotice]:
        return self._show(request, NoticeText(text))

    def _show(self, request: CommandRequest, content: NoticeText) -> Write[NewNotice]:
        return constant(self._proof.owner, reply(request.message, content))


def constant(owner: str, notice: NewNotice) -> Write[NewNotice]:
    """A write that only returns the reply to the chat."""
    return Write(name="reply", owner=owner, verb=lambda _: notice)


def _then(write: Write[T], say: Callable[[T], NewNotice]) -> Write[NewNotice]:
    """A write that returns the reply to the chat about its result."""
    return Write(name=write.name, owner=write.owner, verb=lambda tx: say(write.verb(tx)))


def _continues(session: SessionInfo) -> str:
    return f"This chat continues **{title_of(session)}** · `{session.id[-6:]}`"


def _agent_chosen(name: str) -> str:
    return f"Messages of this chat are for the agent {name}."
