"""Notifications: each notable event is told once, what is given up is kept, and history is told to nobody."""

import io

import pytest

from backstay.errors import InvalidPayload, LeaseLost, NotFound
from backstay.model.content import Text, ToolCall
from backstay.model.gateways.delivery import PartDeferred, PartRefused, PartSent
from backstay.model.gateways.notification import PUSH, NextNotification, Notification, NotificationKind
from backstay.model.ids import DeliveryId
from backstay.model.limits import Limits
from backstay.model.turn import Completed, Failed
from backstay.store import Store
from backstay.store.commands import gateway_commands
from backstay.store.commands.gateways import notification_commands
from backstay.store.commands.gateways.gateway_reports import gateway_reports
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import LEASE, ContractBase, OpenAnother
from tests.contract.builders import ME, STRANGER, new_session, run, say, start

HOOK = "webhook/ops"
UNKNOWN = DeliveryId("dlv_01kb000000e0080000000000zz")
ALL: tuple[NotificationKind, ...] = ("turn_ended", "approval_wanted", "session_changed")
ENDS: tuple[NotificationKind, ...] = ("turn_ended",)


class NotificationContract(ContractBase):
    """What other programs are told."""

    def test_the_end_of_a_turn_is_told_with_its_answer(self, store: Store) -> None:
        sender = Sender(store)
        session = new_session(store)
        run(store, session, "question", "an answer")

        (delivery,) = sender.due()
        (notification,) = sender.sent(delivery, ENDS)

        assert (notification.kind, notification.session, notification.outcome, notification.text) == (
            "turn_ended",
            session,
            Completed(),
            "an answer",
        )
        assert notification.id == f"{session}.{notification.event}"
        assert sender.due() == []

    def test_what_happened_before_a_sender_began_is_told_to_nobody(self, store: Store, clock: ManualClock) -> None:
        run(store, new_session(store), "question", [Text("an "), Text("answer")])
        clock.advance(1)
        sender = Sender(store)
        assert sender.due() == []

        store.fold(older_than=-1)

        assert sender.due() == []

    def test_a_turn_is_told_once_also_if_it_is_folded(self, store: Store, clock: ManualClock) -> None:
        sender = Sender(store)
        clock.advance(1)
        for number in range(2):
            session = new_session(store)
            run(store, session, f"question {number}", [Text("an "), Text("answer")])
        first, second = sender.due()
        told = sender.sent(first, ENDS)

        store.fold(older_than=-1)

        assert sender.due() == [second]
        assert [notification.text for notification in (*told, *sender.sent(second, ENDS))] == ["an answer", "an answer"]
        assert sender.due() == []

    def test_a_call_that_waits_for_a_person_is_told_until_it_is_decided(self, store: Store) -> None:
        sender = Sender(store)
        proofs = [start(store, new_session(store)) for _ in range(2)]
        calls = [ToolCall(f"c{number}", "rm", {"approval": True}, approval=True) for number in range(2)]
        for proof, call in zip(proofs, calls, strict=True):
            say(store, proof, ToolCall("free", "ls", {"approval": True}), call)
        store.approve(proofs[0].id, "c0", owner=ME)

        told = [notification for due in sender.due() for notification in sender.sent(due, ("approval_wanted",))]

        assert [(notification.turn, notification.call) for notification in told] == [(proofs[1].id, calls[1])]

    def test_changes_of_a_session_are_told_up_to_its_deletion(self, store: Store) -> None:
        sender = Sender(store)
        session = new_session(store)
        store.rename(session, "Tea", owner=ME)
        (delivery,) = sender.due()

        told = sender.sent(delivery, ALL)
        store.delete(session, owner=ME)
        (delivery,) = sender.due()
        (gone,) = sender.sent(delivery, ALL)

        assert [(notification.change, notification.title) for notification in told] == [
            ("session_created", "Tea"),
            ("session_renamed", "Tea"),
        ]
        assert (gone.change, gone.session, gone.title) == ("session_deleted", session, None)
        assert sender.due() == []

    def test_an_imported_session_tells_nothing_of_its_past(self, store: Store) -> None:
        session = new_session(store)
        run(store, session, "question", "an answer")
        document = io.BytesIO()
        store.export_to(session, document, owner=ME)
        sender = Sender(store)

        document.seek(0)
        copy = store.import_session(document, owner=ME, new_ids=True).session.id
        before = [notification for due in sender.due() for notification in sender.sent(due, ENDS)]
        run(store, copy, "question", "a new answer")
        after = [notification for due in sender.due() for notification in sender.sent(due, ENDS)]

        assert before == []
        assert [notification.text for notification in after] == ["a new answer"]

    def test_a_sender_of_notifications_is_not_listed_as_a_chat(self, store: Store) -> None:
        Sender(store)
        Sender(store, PUSH)

        assert store.run(gateway_reports(owner=ME)) == ()

    def test_another_owner_is_told_nothing(self, store: Store) -> None:
        sender, mine = Sender(store), Sender(store, "webhook/theirs", STRANGER)
        run(store, new_session(store))

        assert mine.due() == []
        (delivery,) = sender.due()
        with pytest.raises(NotFound):
            store.run(notification_commands.next_notification(delivery, ALL, gateway=HOOK, owner=STRANGER))
        with pytest.raises(NotFound):
            store.run(notification_commands.retry_notifications(HOOK, owner=STRANGER))

    # --- what cannot be sent ------------------------------------------------------------------------------------------

    def test_a_failed_notification_holds_up_no_other_and_can_be_sent_again(self, store: Store) -> None:
        sender = Sender(store)
        session = new_session(store)
        proof = start(store, session)
        store.finish(say(store, proof, Text("half")), Failed("no network"))
        (delivery,) = sender.due()
        refused = sender.next(delivery, ENDS)
        sender.send(delivery, refused.event, PartRefused("HTTP 410"))
        store.run(notification_commands.settle_notification(sender.proof, delivery, refused.event))
        run(store, session, "next", "well")
        assert sender.due() == [delivery]
        assert [notification.text for notification in sender.sent(delivery, ENDS)] == ["well"]

        (letter,) = store.run(notification_commands.dead_letters(HOOK, owner=ME))
        backlog = store.run(notification_commands.notification_backlog(HOOK, owner=ME))
        assert (letter.id, letter.reason, letter.attempts) == (f"{session}.{refused.event}", "HTTP 410", 1)
        assert (backlog.waiting, backlog.failed) == (0, 1)
        assert (
            store.run(notification_commands.retry_notifications(HOOK, owner=ME, session=session, event=letter.event))
            == 1
        )
        assert store.run(notification_commands.retry_notifications(HOOK, owner=ME)) == 0

        assert [one.id for one in store.run(gateway_commands.due_deliveries(HOOK, owner=ME))] == [delivery]
        assert sender.sent(delivery, ENDS) == [refused.notification]
        assert store.run(notification_commands.dead_letters(HOOK, owner=ME)) == ()
        assert sender.due() == []

    def test_what_waits_for_another_attempt_stays_due(self, store: Store, clock: ManualClock) -> None:
        sender = Sender(store)
        run(store, new_session(store))
        (delivery,) = sender.due()
        event = sender.next(delivery, ENDS).event

        sender.send(delivery, event, PartDeferred("HTTP 503"))
        found = sender.next(delivery, ENDS)
        assert [(one.state, one.attempts) for one in found.receipts] == [("waiting", 1)]
        clock.advance(60_000)
        sender.send(delivery, event, PartDeferred("HTTP 503"), max_age_seconds=60)

        found = sender.next(delivery, ENDS)
        assert [(one.state, one.attempts, one.reason) for one in found.receipts] == [
            ("failed", 2, "too late: HTTP 503")
        ]

    def test_a_sender_that_dies_leaves_what_it_was_sending_in_doubt(
        self, store: Store, other: Store, clock: ManualClock
    ) -> None:
        dead = Sender(store)
        run(store, new_session(store))
        (delivery,) = dead.due()
        event = dead.next(delivery, ENDS).event
        store.run(gateway_commands.begin_part(dead.proof, delivery, event, 0, low=0, high=1))
        clock.advance(LEASE + 1)

        sender = Sender(other)

        assert [one.state for one in sender.next(delivery, ENDS).receipts] == ["unknown"]
        with pytest.raises(LeaseLost):
            store.run(notification_commands.settle_notification(dead.proof, delivery, event))
        assert len(sender.sent(delivery, ENDS)) == 1

    def test_a_sender_keeps_the_newest_notifications_that_it_gave_up(
        self, open_another: OpenAnother, clock: ManualClock
    ) -> None:
        store = open_another(limits=Limits(dead_letters=2))
        sender = Sender(store)
        run(store, new_session(store))
        (delivery,) = sender.due()
        event = sender.next(delivery, ENDS).event
        for part in range(3):
            clock.advance(1)
            sender.send(delivery, event, PartRefused(f"refused {part}"), part=part)

        store.run(notification_commands.settle_notification(sender.proof, delivery, event))

        kept = store.run(notification_commands.dead_letters(HOOK, owner=ME))
        assert [one.reason for one in kept] == ["refused 2", "refused 1"]

    def test_a_notification_is_named_completely(self, store: Store) -> None:
        Sender(store)

        with pytest.raises(InvalidPayload):
            notification_commands.retry_notifications(HOOK, owner=ME, event=3)
        with pytest.raises(InvalidPayload):
            notification_commands.next_notification(UNKNOWN, ["news"], gateway=HOOK, owner=ME)  # type: ignore[list-item]  # that is the point


class Sender:
    """A sender of notifications, as it reads the feed and sends."""

    def __init__(self, store: Store, name: str = HOOK, owner: str = ME) -> None:
        self._store, self._name, self._owner = store, name, owner
        proof = store.run(gateway_commands.open_gateway(name, owner=owner))
        assert proof is not None
        self.proof = store.run(notification_commands.begin_notifications(proof))

    def due(self) -> list[DeliveryId]:
        """Read the feed to its end; the deliveries with something to send."""
        more = True
        while more:
            found = self._store.run(
                notification_commands.notable_events(self._name, self.proof.feed, owner=self._owner, limit=2)
            )
            self.proof, more = self._store.run(notification_commands.mark_notable(self.proof, found)), found.more
        return [one.id for one in self._store.run(gateway_commands.due_deliveries(self._name, owner=self._owner))]

    def next(self, delivery: DeliveryId, kinds: tuple[NotificationKind, ...]) -> NextNotification:
        """The next notification, past events that concern nobody."""
        while True:
            found = self._store.run(
                notification_commands.next_notification(delivery, kinds, gateway=self._name, owner=self._owner)
            )
            if found.notification is not None:
                return found
            settled = self._store.run(notification_commands.settle_notification(self.proof, delivery, found.event))
            if settled is None or not settled.due:
                return found

    def send(
        self,
        delivery: DeliveryId,
        event: int,
        result: PartSent | PartRefused | PartDeferred,
        *,
        part: int = 0,
        max_age_seconds: float = 1e6,
    ) -> None:
        """Send a notification to one receiver, with this result."""
        begin = gateway_commands.begin_part(self.proof, delivery, event, part, low=0, high=1)
        if self._store.run(begin).state == "sending":
            self._store.run(
                gateway_commands.finish_part(self.proof, delivery, event, part, result, max_age_seconds=max_age_seconds)
            )

    def sent(self, delivery: DeliveryId, kinds: tuple[NotificationKind, ...]) -> list[Notification]:
        """Send everything that is due about a session."""
        told: list[Notification] = []
        while (found := self.next(delivery, kinds)).notification is not None:
            told.append(found.notification)
            self.send(delivery, found.event, PartSent("204"))
            if self._store.run(notification_commands.settle_notification(self.proof, delivery, found.event)) is None:
                break
        return told
