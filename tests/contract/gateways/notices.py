"""Notices, presses of their buttons, and the settings of chats."""

import pytest

from backstay.errors import Conflict, LeaseLost, NotFound, NothingToDo, UnknownAgent
from backstay.model.content import Text, ToolCall
from backstay.model.gateways.arrival import Arrival
from backstay.model.gateways.delivery import PartDeferred, PartRefused, PartResult, PartSent, PartUncertain
from backstay.model.gateways.gateway import OpenGateway
from backstay.model.gateways.notice import (
    CallName,
    ChatSettings,
    ChooseAgent,
    ChooseBusy,
    DecideCall,
    NewButton,
    NewNotice,
    Notice,
    NoticeText,
    OpenQuestion,
    Press,
    Pressed,
    Rights,
    ShowSession,
)
from backstay.model.turn import Accepted, Completed, OpenTurn
from backstay.store import Store, commands
from backstay.store.commands import gateway_commands
from backstay.store.commands.gateways import notice_commands
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import LEASE, ContractBase
from tests.contract.builders import AGENT, ME, STRANGER, new_session, room, say, start
from tests.contract.gateways.received_messages import BOT, HOME, hello, opened, received, turn_of

ANN, BOB = "42", "43"
LIST = NoticeText(
    "Which?",
    (
        (NewButton("queue", ChooseBusy("enqueue", "queued")), NewButton("steer", ChooseBusy("steer", "steered"))),
        (NewButton("echo", ChooseAgent(AGENT, "echo it is")),),
    ),
)


class NoticeContract(ContractBase):
    """What a gateway says itself."""

    # --- sending ----------------------------------------------------------------------------------------------------

    def test_a_command_and_its_reply_are_stored_once(self, store: Store) -> None:
        proof, session = opened(store), new_session(store)
        renamed = commands.rename(session, "new title", owner=ME)
        command = Arrival(id="42/9", to=session, destination=HOME)

        def obey() -> bool:
            action = _reply("done", after=renamed)
            return store.run(notice_commands.obey(proof, command, cursor="7", action=action)).repeated

        assert not obey()
        assert obey()
        assert store.session(session, owner=ME).title == "new title"
        assert [(notice.text, notice.version, notice.shown) for notice in _due(store)] == [("done", 1, 0)]

    def test_a_refused_command_stores_nothing(self, store: Store) -> None:
        proof, session = opened(store), new_session(store)
        action = _reply("done", after=commands.undo(session, owner=ME))

        with pytest.raises(NothingToDo):
            store.run(
                notice_commands.obey(proof, Arrival(id="42/9", to=session, destination=HOME), cursor="7", action=action)
            )
        assert _due(store) == ()

    def test_a_shown_reply_is_dropped_and_a_list_stays(self, store: Store) -> None:
        proof = opened(store)
        for name, content, final in (("reply", NoticeText("ok"), True), ("list", LIST, False)):
            _add(store, proof, _new(name, content, final=final))
        for notice in _due(store):
            _send(store, proof, notice)

        assert _due(store) == ()
        assert _add(store, proof, _new("list", LIST, final=False)).platform_id == "42/77"
        assert _add(store, proof, _new("reply", NoticeText("ok"))).shown == 0

    def test_a_notice_in_doubt_is_sent_again_and_says_so(self, store: Store, other: Store, clock: ManualClock) -> None:
        proof = opened(store)
        _add(store, proof, _new("reply", NoticeText("ok")))
        _add(store, proof, _new("busy", NoticeText("waiting"), kind="busy", final=False))
        for notice in _due(store):
            begun = store.run(notice_commands.begin_notice(proof, notice.id))
            assert begun is not None
            assert store.run(notice_commands.begin_notice(proof, notice.id)) is None, "it is being sent"
        clock.advance(LEASE + 1)

        proof = opened(other)

        reply, busy = _due(other)
        again = other.run(notice_commands.begin_notice(proof, reply.id))
        assert again is not None
        assert again.repeated
        assert other.run(notice_commands.begin_notice(proof, busy.id)) is None, "a state is not repeated"
        assert len(_due(other)) == 1

    def test_a_revised_notice_is_edited_until_it_is_shown(self, store: Store) -> None:
        proof = opened(store)
        _add(store, proof, _new("busy", NoticeText("waiting"), kind="busy", final=False))
        (notice,) = _due(store)
        _send(store, proof, notice)
        _revise(store, proof, notice, "running", final=False)
        (edited,) = _due(store)
        assert (edited.text, edited.platform_id, edited.shown) == ("running", "42/77", 1)

        uncertain = PartUncertain("cut")
        assert store.run(notice_commands.finish_notice(proof, edited, uncertain)) is not None
        assert len(_due(store)) == 1
        _revise(store, proof, notice, "answered", final=True)
        # The receipt of the older text: the newer one is still to be shown.
        store.run(notice_commands.finish_notice(proof, edited, PartSent("42/77")))
        (last,) = _due(store)
        assert store.run(notice_commands.finish_notice(proof, last, PartRefused("message to edit not found"))) is None
        assert _due(store) == ()

    def test_a_notice_that_cannot_be_sent_is_given_up(self, store: Store, clock: ManualClock) -> None:
        proof = opened(store)
        for name in ("refused", "late"):
            _add(store, proof, _new(name, NoticeText("ok")))
        results: tuple[PartResult, ...] = (PartRefused("blocked"), PartDeferred("wait"))
        for notice, result in zip(_due(store), results, strict=True):
            begun = store.run(notice_commands.begin_notice(proof, notice.id))
            assert begun is not None
            store.run(notice_commands.finish_notice(proof, begun, result, max_age_seconds=60))
        (late,) = _due(store)
        clock.advance(60_000)
        proof = store.run(gateway_commands.renew_gateway(proof))
        begun = store.run(notice_commands.begin_notice(proof, late.id))
        assert begun is not None

        assert store.run(notice_commands.finish_notice(proof, begun, PartDeferred("wait"), max_age_seconds=60)) is None
        assert _due(store) == ()

    def test_the_state_of_a_waiting_message_is_watched(self, store: Store) -> None:
        proof = opened(store)
        first = turn_of(received(store, proof, hello()))
        running = store.claim([AGENT])
        assert running is not None
        second = store.run(gateway_commands.receive(proof, hello("42/2"), cursor="2", acknowledge=_acknowledge))
        assert second.turn is not None

        (watched,) = store.run(notice_commands.watched_notices(BOT, owner=ME))
        assert (watched.notice.text, watched.turn_state) == ("2 waiting: False", "waiting")
        store.finish(running, Completed())
        assert store.claim([AGENT]) is not None
        (watched,) = store.run(notice_commands.watched_notices(BOT, owner=ME))
        assert (watched.notice.turn, watched.turn_state) == (second.turn.id, "running")
        store.delete(first.session, owner=ME)
        (watched,) = store.run(notice_commands.watched_notices(BOT, owner=ME))
        assert watched.turn_state is None

    # --- questions --------------------------------------------------------------------------------------------------

    def test_each_chat_of_a_session_is_asked_once(self, store: Store) -> None:
        proof, _ = _asking(store)
        (session,) = store.list(owner=ME).sessions
        store.run(notice_commands.mirror_session(proof, "another", session.id))

        questions = _unasked(store)

        assert [question.destination for question in questions] == [HOME, "another"]
        assert [(one.tool, one.arguments, one.person) for one in questions] == [("rm", '{"path":"a"}', ANN)] * 2
        for question in questions:
            _ask(store, proof, question)
            _ask(store, proof, question)
        assert _unasked(store) == ()
        assert len(_due(store)) == 2

    def test_a_question_is_asked_with_the_arguments_of_the_call(self, store: Store) -> None:
        proof, _ = _asking(store)
        (question,) = _unasked(store)
        forged = CallName(question.call.root, question.call.ordinal, "0" * 64)
        wrong = NewNotice(
            name="x",
            destination=HOME,
            kind="approval",
            content=NoticeText("?"),
            turn=question.turn,
            call=forged,
        )

        assert store.run(notice_commands.ask(proof, wrong)) is None
        with pytest.raises(Conflict):
            store.run(notice_commands.decide_call(proof, forged, approved=True))
        assert len(_unasked(store)) == 1

    def test_an_interrupted_turn_still_asks_and_the_continued_one_not_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        proof, asking = _asking(store)
        (question,) = _unasked(store)
        _ask(store, proof, question)
        clock.advance(LEASE + 1)
        store.reap()
        proof = opened(store)

        (watched,) = store.run(notice_commands.watched_notices(BOT, owner=ME))
        assert watched.undecided
        store.resume(asking.id, owner=ME)
        assert _unasked(store) == ()

    def test_a_call_of_another_owner_is_not_asked_about(self, store: Store) -> None:
        _asking(store)
        theirs = store.run(gateway_commands.open_gateway(BOT, owner=STRANGER))
        assert theirs is not None

        assert store.run(notice_commands.unasked_calls(BOT, owner=STRANGER)) == ()
        (session,) = store.list(owner=ME).sessions
        with pytest.raises(NotFound):
            store.run(notice_commands.undecided_calls(BOT, session.id, owner=STRANGER))
        with pytest.raises(NotFound):
            store.run(notice_commands.show_session(theirs, room(), HOME, session.id))
        with pytest.raises(NotFound):
            store.run(notice_commands.mirror_session(theirs, HOME, session.id))

    # --- presses ----------------------------------------------------------------------------------------------------

    def test_a_press_decides_once(self, store: Store) -> None:
        proof, asking = _asking(store)
        approve, deny = _asked(store, proof)

        assert _press(store, proof, approve).result == "done"

        assert [call.approval for call in store.calls(asking.id, owner=ME)] == ["approved"]
        assert _press(store, proof, approve).result == "done", "the same press, received again"
        for late in (approve, deny):
            pressed = _press(store, proof, late, id="p2")
            assert (pressed.result, pressed.by) == ("used", "Ann")
        (watched,) = store.run(notice_commands.watched_notices(BOT, owner=ME))
        assert (watched.approval, watched.undecided, watched.decided_by) == ("approved", False, "Ann")

    @pytest.mark.parametrize(
        ("sender", "rights", "result"),
        [
            (ANN, "own", "done"),
            (ANN, "private", "done"),
            (ANN, "none", "foreign"),
            (BOB, "own", "foreign"),
            (BOB, "private", "foreign"),
            (BOB, "all", "done"),
        ],
    )
    def test_who_may_decide(self, store: Store, sender: str, rights: Rights, result: str) -> None:
        proof, asking = _asking(store)
        approve, _ = _asked(store, proof)

        assert _press(store, proof, approve, sender=sender, rights=rights).result == result

        decided = "approved" if result == "done" else "asked"
        assert [call.approval for call in store.calls(asking.id, owner=ME)] == [decided]

    def test_a_question_that_nobody_asked_is_decided_in_a_private_chat(self, store: Store) -> None:
        proof, session = opened(store), new_session(store)
        store.run(gateway_commands.deliver_to(proof, HOME, session))
        _call(store, start(store, session, "asked on the page"))
        approve, _ = _asked(store, proof)

        assert _press(store, proof, approve, rights="own").result == "foreign"
        assert _press(store, proof, approve, rights="private", id="p2").result == "done"

    @pytest.mark.parametrize("forged", ["", "x", "0" * 32, "approve"])
    def test_a_forged_press_changes_nothing(self, store: Store, forged: str) -> None:
        proof, asking = _asking(store)
        _asked(store, proof)

        assert _press(store, proof, forged, rights="all").result == "unknown"
        assert [call.approval for call in store.calls(asking.id, owner=ME)] == ["asked"]

    def test_a_button_works_only_under_its_message_and_for_its_gateway(self, store: Store) -> None:
        proof, asking = _asking(store)
        approve, _ = _asked(store, proof)
        theirs = store.run(gateway_commands.open_gateway(BOT, owner=STRANGER))
        assert theirs is not None

        assert _press(store, theirs, approve, rights="all").result == "unknown"
        assert _press(store, proof, approve, message="43/1").result == "unknown"
        assert [call.approval for call in store.calls(asking.id, owner=ME)] == ["asked"]

    def test_a_press_of_a_call_that_does_not_wait_any_more_is_refused(self, store: Store) -> None:
        proof, asking = _asking(store)
        approve, _ = _asked(store, proof)
        store.run(commands.deny(asking.id, "call_1", owner=ME))

        with pytest.raises(NothingToDo):
            _press(store, proof, approve)
        assert opened_cursor(store) == "0"

    def test_a_press_chooses_for_the_chat_and_replaces_the_list(self, store: Store) -> None:
        proof = opened(store)
        older = _add(store, proof, _new("one", LIST, final=False))
        newer = _add(store, proof, _new("two", LIST, final=False))
        _, steer = newer.rows[0]

        assert _press(store, proof, older.rows[0][0].id).result == "used", "a newer list replaces it"
        assert _press(store, proof, steer.id, sender=BOB, id="p2").result == "foreign"
        assert _press(store, proof, steer.id, id="p3").result == "done"

        assert _settings(store) == ChatSettings(if_busy="steer")
        assert [(notice.text, notice.rows) for notice in _due(store)] == [("Which?", ()), ("steered", ())]

    def test_a_press_binds_the_chat_to_a_session(self, store: Store) -> None:
        proof, target = opened(store), new_session(store)
        before = turn_of(received(store, proof, hello())).session
        done = ShowSession(room().on(store.host).spelling, target, "here")
        notice = _add(store, proof, _new("list", NoticeText("Which?", ((NewButton("it", done),),)), final=False))

        _press(store, proof, notice.rows[0][0].id)

        assert turn_of(received(store, proof, hello("42/2"))).session == target
        shown = store.run(notice_commands.shown_in(BOT, HOME, owner=ME))
        assert {one.session: one.closing for one in shown} == {before: True, target: False}

    def test_a_late_poller_presses_nothing(self, store: Store, other: Store, clock: ManualClock) -> None:
        proof, asking = _asking(store)
        approve, _ = _asked(store, proof)
        clock.advance(LEASE + 1)
        opened(other)

        with pytest.raises(LeaseLost):
            _press(store, proof, approve)
        assert [call.approval for call in store.calls(asking.id, owner=ME)] == ["asked"]

    # --- chats ------------------------------------------------------------------------------------------------------

    def test_the_settings_of_a_chat_are_its_own(self, store: Store) -> None:
        proof = opened(store)
        store.register_agents([AGENT])
        assert _settings(store) == ChatSettings()

        store.run(notice_commands.choose_settings(proof, HOME, ChatSettings(agent=AGENT, if_busy="fork")))

        assert _settings(store) == ChatSettings(agent=AGENT, if_busy="fork")
        assert store.run(notice_commands.chat_settings(BOT, "another", owner=ME)) == ChatSettings()
        with pytest.raises(UnknownAgent):
            store.run(notice_commands.choose_settings(proof, HOME, ChatSettings(agent="nobody")))

    def test_settings_and_notices_move_with_their_chat(self, store: Store) -> None:
        proof = opened(store)
        store.run(notice_commands.choose_settings(proof, HOME, ChatSettings(if_busy="fork")))
        _add(store, proof, _new("reply", NoticeText("ok")))

        store.run(gateway_commands.move_destination(proof, HOME, "new home"))

        assert store.run(notice_commands.chat_settings(BOT, "new home", owner=ME)) == ChatSettings(if_busy="fork")
        assert [notice.destination for notice in _due(store)] == ["new home"]

    def test_a_chat_continues_a_fork(self, store: Store) -> None:
        proof = opened(store)
        before = turn_of(received(store, proof, hello())).session

        forked = store.run(notice_commands.fork_here(proof, room(), HOME, before))

        assert forked.source == before
        assert turn_of(received(store, proof, hello("42/2"))).session == forked.id

    def test_mirrors_end_and_the_session_of_the_chat_stays(self, store: Store) -> None:
        proof, target = opened(store), new_session(store)
        here = turn_of(received(store, proof, hello())).session
        with pytest.raises(NothingToDo):
            store.run(notice_commands.stop_mirrors(proof, room(), HOME))
        store.run(notice_commands.mirror_session(proof, HOME, target))

        assert store.run(notice_commands.stop_mirrors(proof, room(), HOME)) == 1

        shown = store.run(notice_commands.shown_in(BOT, HOME, owner=ME))
        assert {one.session: one.closing for one in shown} == {here: False}


def opened_cursor(store: Store) -> str:
    """The stored position in the platform's list of messages."""
    (gateway,) = store.run(gateway_commands.gateways(owner=ME))
    return gateway.cursor


def _reply(text: str, *, after: "commands.Write[object]") -> "commands.Write[NewNotice]":
    def verb(tx: object) -> NewNotice:
        after.verb(tx)  # type: ignore[arg-type]  # the transaction that runs this
        return _new("reply 42/9", NoticeText(text))

    return commands.Write(name="reply", owner=ME, verb=verb)


def _new(name: str, content: NoticeText, *, kind: str = "reply", final: bool = True) -> NewNotice:
    return NewNotice(
        name=name,
        destination=HOME,
        kind=kind,  # type: ignore[arg-type]  # the parameter is one
        content=content,
        person=ANN,
        final=final,
    )


def _add(store: Store, proof: OpenGateway, new: NewNotice) -> Notice:
    return store.run(notice_commands.add_notice(proof, new))


def _send(store: Store, proof: OpenGateway, notice: Notice) -> None:
    begun = store.run(notice_commands.begin_notice(proof, notice.id))
    assert begun is not None
    store.run(notice_commands.finish_notice(proof, begun, PartSent("42/77")))


def _revise(store: Store, proof: OpenGateway, notice: Notice, text: str, *, final: bool) -> None:
    store.run(notice_commands.revise_notice(proof, notice.id, NoticeText(text), phase=text, final=final))


def _acknowledge(accepted: Accepted) -> NewNotice:
    running = accepted.session.running is None
    return NewNotice(
        name=f"busy {accepted.turn.id}",
        destination=HOME,
        kind="busy",
        content=NoticeText(f"{accepted.session.waiting + 1} waiting: {running}"),
        turn=accepted.turn.id,
        final=False,
    )


def _asking(store: Store) -> tuple[OpenGateway, OpenTurn]:
    """A turn of a received message that waits for approval."""
    proof = opened(store)
    arrival = Arrival(id="42/1", to=room(), destination=HOME, parts=(Text("clean up"),), sender=ANN)
    received(store, proof, arrival)
    claimed = store.claim([AGENT])
    assert claimed is not None
    return proof, _call(store, claimed)


def _call(store: Store, turn: OpenTurn) -> OpenTurn:
    return say(store, turn, ToolCall("call_1", "rm", {"path": "a"}, approval=True))


def _unasked(store: Store) -> tuple[OpenQuestion, ...]:
    return store.run(notice_commands.unasked_calls(BOT, owner=ME))


def _question(question: OpenQuestion) -> NewNotice:
    buttons = ((NewButton("Approve", DecideCall(True)), NewButton("Deny", DecideCall(False))),)
    return NewNotice(
        name=f"call {question.call.root}.{question.call.ordinal}",
        destination=question.destination,
        kind="approval",
        content=NoticeText(question.tool, buttons),
        person=question.person,
        turn=question.turn,
        call=question.call,
        final=False,
    )


def _ask(store: Store, proof: OpenGateway, question: OpenQuestion) -> Notice:
    notice = store.run(notice_commands.ask(proof, _question(question)))
    assert notice is not None
    return notice


def _asked(store: Store, proof: OpenGateway) -> tuple[str, str]:
    """Ask in the chat; returns the ids of the buttons."""
    (question,) = _unasked(store)
    notice = _ask(store, proof, question)
    _send(store, proof, notice)
    approve, deny = notice.rows[0]
    return approve.id, deny.id


def _press(
    store: Store,
    proof: OpenGateway,
    button: str,
    *,
    id: str = "p1",
    message: str = "42/77",
    sender: str = ANN,
    rights: Rights = "private",
) -> Pressed:
    made = Press(id=id, button=button, message=message, sender=sender, name="Ann", rights=rights)
    return store.run(notice_commands.press(proof, made, cursor="5"))


def _due(store: Store) -> tuple[Notice, ...]:
    return store.run(notice_commands.due_notices(BOT, owner=ME))


def _settings(store: Store) -> ChatSettings:
    return store.run(notice_commands.chat_settings(BOT, HOME, owner=ME))
