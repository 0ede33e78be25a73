"""Receives messages: each is stored, with its turn and the cursor, before it is confirmed to the platform."""

from collections.abc import Sequence
from functools import partial

import msgspec

from backstay.errors import BackstayError, LeaseLost, StoreError
from backstay.gateways.admission import Admission
from backstay.gateways.chats.button_presses import ButtonPresses
from backstay.gateways.chats.chat_tasks import ChatTask, ChatTasks
from backstay.gateways.chats.command_menu import ParsedMessage, parse_message
from backstay.gateways.chats.command_replies import CommandReplies, CommandRequest, constant
from backstay.gateways.chats.notice_delivery import NoticeDelivery
from backstay.gateways.chats.notice_texts import acknowledgement, problem_text, reply
from backstay.gateways.gatherings import Gatherings, MissingFiles
from backstay.gateways.outbox.moved_chats import move_chat
from backstay.gateways.platform import (
    ButtonPress,
    IncomingMessage,
    Platform,
    SendDeferred,
    SendRefused,
    SendUncertain,
    Update,
)
from backstay.gateways.poller_tasks import PollerTasks, log
from backstay.model.addresses.address import Address
from backstay.model.gateways.arrival import Arrival, Received
from backstay.model.gateways.notice import NewNotice, NoticeText
from backstay.store.commands import Write, gateway_commands
from backstay.store.commands.gateways import notice_commands

# The stored cursor is at most so many ignored entries behind.
_MOST_IGNORED = 1_000


class MessageInbox:
    """The inbox of one poller."""

    def __init__(self, tasks: PollerTasks, platform: Platform, gatherings: Gatherings, notices: NoticeDelivery) -> None:
        self._tasks, self._platform, self._gatherings, self._notices = tasks, platform, gatherings, notices
        self._app, self._proof, self._options = tasks.app, tasks.proof, tasks.options
        self._admission = Admission(tasks, platform)
        self._commands, self._chat_tasks = CommandReplies(tasks, self._admission), ChatTasks(tasks, notices)
        self._presses = ButtonPresses(tasks, platform, self._admission, notices)
        # Everything before `read` is stored or ignored. The store's cursor may be behind: ignored entries are not
        # written down.
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
            elif update.press is not None and await self._admits(update.press):
                await self._presses.take(update, update.press)
                self._ignored = 0
            else:
                await self._ignore(update)
            self._read = update.cursor
        return False

    async def _admits(self, press: ButtonPress) -> bool:
        """Whether a press is answered. Nothing is read, stored or sent for a stranger."""
        return await self._admission.allows(press.sender, press.place.chat)

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
        parsed = parse_message(message.text)
        if parsed.command is not None and not message.files:
            await self._obey(update, message, parsed)
            return
        arrival = await self._arrival(message, parsed)
        receive = gateway_commands.receive(
            self._proof,
            arrival,
            cursor=update.cursor,
            acknowledge=partial(acknowledgement, message, arrival.if_busy),
        )
        try:
            received = await self._app.run(receive)
        except (LeaseLost, StoreError):
            raise
        except BackstayError as error:
            await self._refuse(update, message, error)
            return
        self._notices.wake()
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

    async def _arrival(self, message: IncomingMessage, parsed: ParsedMessage) -> Arrival:
        """The message as a turn, by the settings of the message, of its chat, or of the gateway."""
        place, options = message.place.destination, self._options
        chat = await self._app.run(notice_commands.chat_settings(self._proof.name, place, owner=self._proof.owner))
        # A message with files was never a command: its caption is its text, whatever it begins with.
        text = message.text if parsed.command is not None else parsed.text
        missing = MissingFiles(text=text, files=message.files)
        gathers = options.gather_texts or message.album is not None or bool(message.files)
        return Arrival(
            id=message.id,
            to=self._address(message),
            destination=place,
            parts=missing.parts,
            agent=chat.agent or options.agent,
            if_busy=parsed.if_busy or chat.if_busy or options.if_busy,
            # A message with a word of its own is a turn of its own.
            gathering=f"{place} {message.sender}" if parsed.if_busy is None or message.files else None,
            gathers=gathers,
            place=message.number,
            files=msgspec.json.encode(missing).decode() if message.files else None,
            sender=message.sender,
        )

    def _without_turn(self, message: IncomingMessage) -> Arrival:
        return Arrival(
            id=message.id,
            to=self._address(message),
            destination=message.place.destination,
            sender=message.sender,
        )

    # --- commands ---------------------------------------------------------------------------------------------------

    async def _obey(self, update: Update, message: IncomingMessage, parsed: ParsedMessage) -> None:
        """Run a command in the transaction that receives it. It runs once, however often the message is received."""
        request = CommandRequest(message=message, address=self._address(message), words=parsed.text)
        try:
            task = await self._task(parsed.command, request)
            if task is None:
                action = await self._commands.write(parsed.command or "", request)
            else:
                action = constant(self._proof.owner, task.notice)
            received = await self._store(update, message, action)
        except (LeaseLost, StoreError):
            raise
        except BackstayError as error:
            await self._refuse(update, message, error)
            return
        if task is not None and not received.repeated:
            self._chat_tasks.start(task)

    async def _task(self, command: str | None, request: CommandRequest) -> ChatTask | None:
        """The work of a command that takes a while; None: the command is one write."""
        if command == "compact":
            session = await self._commands.session(request)
            return self._chat_tasks.compact(request.message, session, request.words)
        if command == "resume" and not request.words:
            session = await self._commands.session(request)
            if await self._chat_tasks.can_resume(session):
                return self._chat_tasks.resume(request.message, session)
        return None

    async def _refuse(self, update: Update, message: IncomingMessage, error: BackstayError) -> None:
        """Store that the message was received, and send the person the reason why it is not answered."""
        said = reply(message, NoticeText(problem_text(error)))
        await self._store(update, message, constant(self._proof.owner, said))

    async def _store(self, update: Update, message: IncomingMessage, action: Write[NewNotice]) -> Received:
        received = await self._app.run(
            notice_commands.obey(self._proof, self._without_turn(message), cursor=update.cursor, action=action)
        )
        self._notices.wake()
        return received
