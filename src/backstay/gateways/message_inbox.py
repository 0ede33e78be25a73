"""Receives messages: each is stored, with its turn and the cursor, before the platform hears of it."""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from backstay.errors import BackstayError, LeaseLost, NotFound, NothingToDo, StoreError
from backstay.gateways.admission import Admission
from backstay.gateways.gatherings import Gatherings, MissingFiles
from backstay.gateways.outbox.moved_chats import move_chat
from backstay.gateways.platform import IncomingMessage, Platform, SendDeferred, SendRefused, SendUncertain, Update
from backstay.gateways.poller_tasks import PollerTasks, log
from backstay.model.addresses.address import Address
from backstay.model.gateways.arrival import Arrival
from backstay.model.session import SessionInfo
from backstay.store import commands
from backstay.store.commands import Write, gateway_commands

# The stored cursor is at most so many ignored entries behind.
_MOST_IGNORED = 1_000

HELP = """Write to me, and the agent answers. Commands:
/new begins another session
/stop stops the answer that is being written
/undo takes the last question and its answer back
/redo brings them back
/retry answers the last question again
/status shows the session"""


class MessageInbox:
    """The inbox of one poller."""

    def __init__(self, tasks: PollerTasks, platform: Platform, gatherings: Gatherings) -> None:
        self._tasks, self._platform, self._gatherings = tasks, platform, gatherings
        self._app, self._proof, self._options = tasks.app, tasks.proof, tasks.options
        self._admission = Admission(tasks, platform)
        # Everything before `read` is stored or concerns nobody here. The store's cursor may be behind: what concerns
        # nobody is not written down.
        self._read = tasks.proof.cursor
        self._ignored = 0

    async def run(self) -> None:
        """Receive messages, forever."""
        await self._tasks.persist("receiving", self._receive)

    async def _receive(self) -> bool:
        """Receive some messages. A failure leaves the cursor before the first that is not stored."""
        for update in await self._updates():
            if update.moved is not None:
                await move_chat(self._app, self._proof, *update.moved)
            if update.message is not None and await self._admission.admits(update.message):
                self._tasks.status.received += 1
                await self._take_or_skip(update, update.message)
                self._ignored = 0
            else:
                await self._ignore(update)
            self._read = update.cursor
        return False

    async def _updates(self) -> Sequence[Update]:
        status = self._tasks.status
        try:
            updates = await self._platform.receive(self._read)
        except (SendDeferred, SendRefused, SendUncertain) as error:
            status.platform_failed(str(error))
            raise
        status.platform_answered()
        return updates

    async def _ignore(self, update: Update) -> None:
        """Store the cursor once in a while, so that few entries are read again after a restart."""
        self._tasks.status.ignored += 1
        self._ignored += 1
        if self._ignored >= _MOST_IGNORED:
            await self._app.run(gateway_commands.move_cursor(self._proof, update.cursor))
            self._ignored = 0

    async def _take_or_skip(self, update: Update, message: IncomingMessage) -> None:
        """Store a message. One that cannot even be refused is skipped: it must not stop the others."""
        try:
            await self._take(update, message)
        except (LeaseLost, StoreError):
            raise
        except BackstayError:
            log.exception("%s: message %s cannot be stored and is skipped", self._proof.name, message.id)
            await self._app.run(gateway_commands.move_cursor(self._proof, update.cursor))

    async def _take(self, update: Update, message: IncomingMessage) -> None:
        command = _command_in(message.text)
        if command is not None:
            await self._obey(update, message, command)
            return
        arrival = self._arrival(message)
        try:
            received = await self._app.run(gateway_commands.receive(self._proof, arrival, cursor=update.cursor))
        except (LeaseLost, StoreError):
            raise
        except BackstayError as error:
            await self._refuse(update, message, error)
            return
        if received.gathering is not None and not received.repeated:
            self._gatherings.note(received.gathering, arrival.id, arrival.files)

    def _address(self, message: IncomingMessage) -> Address:
        platform, account = self._proof.name.split("/", 1)
        place = message.place
        own = place.kind != "dm" and self._options.members == "own"
        return Address.chat(
            platform,
            place.kind,
            chat=place.chat,
            thread=place.thread,
            user=message.sender if own else None,
            account=account,
        )

    def _arrival(self, message: IncomingMessage, *, empty: bool = False) -> Arrival:
        missing = MissingFiles(text=message.text, files=message.files)
        gathers = self._options.gather_texts or message.album is not None or bool(message.files)
        return Arrival(
            id=message.id,
            to=self._address(message),
            destination=message.place.destination,
            parts=() if empty else missing.parts,
            agent=self._options.agent,
            gathering=f"{message.place.destination} {message.sender}",
            gathers=gathers,
            place=message.number,
            files=msgspec.json.encode(missing).decode() if message.files and not empty else None,
        )

    # --- commands ---------------------------------------------------------------------------------------------------

    async def _obey(self, update: Update, message: IncomingMessage, command: str) -> None:
        """Run a command in the transaction that receives it. It runs once, whatever is received again."""
        arrival = self._arrival(message, empty=True)
        if command in ("help", "start"):
            await self._app.run(gateway_commands.receive(self._proof, arrival, cursor=update.cursor))
            await self._tell(message, HELP)
            return
        if command not in _ACTIONS and command not in ("new", "status"):
            await self._app.run(gateway_commands.receive(self._proof, arrival, cursor=update.cursor))
            await self._tell(message, f"There is no command /{command}. /help lists them.")
            return
        try:
            action, done = await self._action(message, command)
            received = await self._app.run(
                gateway_commands.receive(self._proof, arrival, cursor=update.cursor, action=action)
            )
        except (LeaseLost, StoreError):
            raise
        except BackstayError as error:
            await self._refuse(update, message, error)
            return
        if not received.repeated:
            await self._tell(message, done)

    async def _action(self, message: IncomingMessage, command: str) -> tuple[Write[object] | None, str]:
        """The command of the store, and what the person is told once it has run."""
        address = self._address(message)
        if command == "new":
            return gateway_commands.start_anew(self._proof, address, message.place.destination), "A new session."
        try:
            session = await self._app.run(commands.at(address, owner=self._proof.owner))
        except NotFound as error:
            raise NothingToDo("this chat has no session yet", hint="Write a message first.") from error
        if command == "status":
            return None, _status(session)
        action, done = _ACTIONS[command]
        return action(session), done

    async def _refuse(self, update: Update, message: IncomingMessage, error: BackstayError) -> None:
        """Store that the message was received, and tell the person why it is not answered."""
        arrival = self._arrival(message, empty=True)
        await self._app.run(gateway_commands.receive(self._proof, arrival, cursor=update.cursor))
        await self._tell(message, f"⚠️ {error.args[0]}" + (f"\n{error.hint}" if error.hint else ""))

    async def _tell(self, message: IncomingMessage, text: str) -> None:
        """Send a notice in the background, once: it repeats what the session shows anyway."""
        self._tasks.start(f"notice for {message.id}", partial(self._send, message, text))

    async def _send(self, message: IncomingMessage, text: str) -> None:
        try:
            await self._platform.send(message.place, text)
        except (SendRefused, SendDeferred, SendUncertain) as error:
            log.warning("%s: a notice was not sent: %s", self._proof.name, error)


def _command_in(text: str) -> str | None:
    """The command in a message such as `/new` or `/new@my_bot`, or None."""
    if not text.startswith("/") or not text[1:2].isalpha():
        return None
    return text[1:].split(maxsplit=1)[0].split("@", 1)[0].lower()


def _status(session: SessionInfo) -> str:
    running = "an answer is being written" if session.running is not None else "idle"
    waiting = f", {session.waiting} waiting" if session.waiting else ""
    title = f"**{session.title}**\n" if session.title else ""
    return f"{title}`{session.id}`\n{running}{waiting}; {session.turns} turns"


def _stop(session: SessionInfo) -> Write[object]:
    if session.running is None:
        raise NothingToDo("nothing runs in this session")
    return commands.cancel(session.running, owner=session.owner)


_ACTIONS: dict[str, tuple[Callable[[SessionInfo], Write[object]], str]] = {
    "stop": (_stop, "⏹ stopping"),
    "undo": (
        lambda session: commands.undo(session.id, owner=session.owner),
        "The last turn is undone. /redo brings it back.",
    ),
    "redo": (lambda session: commands.redo(session.id, owner=session.owner), "The turn is back."),
    "retry": (lambda session: commands.retry(session.id, owner=session.owner), "Answering again."),
}
