"""Presses of buttons: each is stored with the cursor and with what it does, and then answered."""

from functools import partial

from backstay.errors import BackstayError, LeaseLost, StoreError
from backstay.gateways.admission import Admission
from backstay.gateways.chats.notice_delivery import NoticeDelivery
from backstay.gateways.platform import (
    ButtonPress,
    ChatPlace,
    Platform,
    SendDeferred,
    SendRefused,
    SendUncertain,
    Update,
)
from backstay.gateways.poller_tasks import PollerTasks, log
from backstay.model.addresses.address import Address
from backstay.model.gateways.arrival import Arrival
from backstay.model.gateways.notice import DecideCall, Press, Pressed, Rights, WithdrawTurn
from backstay.store.commands import gateway_commands
from backstay.store.commands.gateways import notice_commands


class ButtonPresses:
    """Receives the presses of one poller."""

    def __init__(self, tasks: PollerTasks, platform: Platform, admission: Admission, notices: NoticeDelivery) -> None:
        self._tasks, self._platform, self._admission, self._notices = tasks, platform, admission, notices
        self._app, self._proof = tasks.app, tasks.proof

    async def take(self, update: Update, pressed: ButtonPress) -> None:
        """Store a press, execute the action of the button, and show the result to the person who pressed it."""
        made = Press(
            id=pressed.id,
            button=pressed.button,
            message=pressed.message,
            sender=pressed.sender,
            name=pressed.name,
            rights=await rights_of(self._admission, pressed.sender, pressed.place),
        )
        try:
            result = await self._app.run(notice_commands.press(self._proof, made, cursor=update.cursor))
        except (LeaseLost, StoreError):
            raise
        except BackstayError as error:
            await self._refuse(update, pressed)
            text = str(error.args[0])
        else:
            text = _answer(result)
        self._notices.wake()
        self._tasks.start(f"answer to {pressed.id}", partial(self._answer, pressed.id, text))

    async def _refuse(self, update: Update, pressed: ButtonPress) -> None:
        """Store that the press was received, and nothing else."""
        platform, account = self._proof.name.split("/", 1)
        place = pressed.place
        arrival = Arrival(
            id=f"press/{pressed.id}",
            to=Address.chat(platform, place.kind, chat=place.chat, account=account),
            destination=place.destination,
            sender=pressed.sender,
        )
        await self._app.run(gateway_commands.receive(self._proof, arrival, cursor=update.cursor))

    async def _answer(self, press: str, text: str) -> None:
        try:
            await self._platform.answer(press, text)
        except (SendRefused, SendDeferred, SendUncertain) as error:
            # The platform accepts it for some seconds only, and the message shows the decision anyway.
            log.info("%s: a press was not answered: %s", self._proof.name, error)


async def rights_of(admission: Admission, sender: str, place: ChatPlace) -> Rights:
    """The calls that a person may decide on. One who is only admitted with a group, or by `*`, decides on none."""
    if admission.is_approver(sender):
        return "all"
    if not await admission.names(sender):
        return "none"
    return "private" if place.kind == "dm" else "own"


def _answer(pressed: Pressed) -> str:
    match pressed.result:
        case "done":
            return _done(pressed)
        case "used":
            return f"Already decided by {pressed.by}." if pressed.by else "This was decided already."
        case "foreign":
            return "This button is for the person who asked, or for an approver. Nothing was changed."
        case "unknown":
            return "This button is not valid here, or not any more. Nothing was changed."


def _done(pressed: Pressed) -> str:
    match pressed.action:
        case DecideCall(approved=approved):
            return "Approved." if approved else "Denied."
        case WithdrawTurn():
            return "Withdrawn."
        case _:
            return "Done."
