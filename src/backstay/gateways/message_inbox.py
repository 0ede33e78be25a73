"""Receives messages: each is stored, with its turn and the cursor, before the platform hears of it."""

from collections.abc import Callable
from functools import partial

import msgspec

from backstay.errors import BackstayError, LeaseLost, NotFound, NothingToDo, StoreError
from backstay.gateways.gatherings import Gatherings, MissingFiles
from backstay.gateways.outbox.moved_chats import move_chat
from backstay.gateways.platform import IncomingMessage, Platform, SendDeferred, SendRefused, SendUncertain, Update
from backstay.gateways.poller_tasks import PollerTasks, log
from backstay.model.addresses.address import Address
from backstay.model.gateways.arrival import Arrival
from backstay.model.session import SessionInfo
from backstay.store import commands
from backstay.store.commands import Write, gateway_commands

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
        # `stored` is what the store has; `read` may be further, by entries that concern nobody here.
        self._stored = self._read = tasks.proof.cursor

    async def run(self) -> None:
        """Receive messages, forever."""
        await self._tasks.persist("receiving", self._receive)

    async def _receive(self) -> bool:
        """Receive some messages. A failure leaves the cursor before the first that is not stored."""
        updates = await self._platform.receive(self._stored)
        self._read = self._stored
        for update in updates:
            if update.moved is not None:
                await move_chat(self._app, self._proof, *update.moved)
            if update.message is not None and self._concerns_us(update.message):
                await self._take_or_skip(update, update.message)
                self._stored = update.cursor
            self._read = update.cursor
        if self._read != self._stored:
            await self._app.run(gateway_commands.move_cursor(self._proof, self._read))
            self._stored = self._read
        return False

    def _concerns_us(self, message: IncomingMessage) -> bool:
        """Whether the message is answered. Nothing is read, written or sent for any other."""
        if not self._options.allows(message.sender, message.place.chat):
            return False
        return message.place.kind == "dm" or message.to_us or self._options.groups == "all"

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
