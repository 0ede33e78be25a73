"""The running turn is in another process: all operations on it and behind it work as if it ran here."""

import pytest

import backstay
from backstay import Timing
from backstay.errors import Conflict, SessionBusy
from backstay.model.event import Cursor, Event, SteeringTaken, TextDelta, ToolCalled, ToolReturned, TurnEnded
from backstay.model.turn import Cancelled, Completed, Failed
from backstay.runtime.session_handle import Session
from tests.databases import Place
from tests.runtime_processes.app_programs import LONG, Setting
from tests.runtime_processes.turn_in_child import TurnInChild, busy, echo, listening, said, seen

# --- the running turn -----------------------------------------------------------------------------------------------


async def test_a_turn_cancelled_from_another_process_keeps_its_output(place: Place) -> None:
    async with busy(place) as remote:
        outcome, messages = await remote.turn.cancel(), await said(remote.session)

    assert isinstance(outcome, Cancelled)
    assert messages == [("user", "first"), ("assistant", "one …")]


async def test_a_cancelled_turns_tool_call_is_kept_and_may_have_run(place: Place) -> None:
    async with busy(place) as remote:
        remote.other.send_order("first", "call", "look", {"at": "sky"})
        await remote.other.receive_async("inside", "look")
        await remote.turn.cancel()
        (ended,) = [event.body for event in await seen(remote.turn, TurnEnded) if isinstance(event.body, TurnEnded)]
        (call,) = await remote.turn.calls()
        effect = call.effect

    assert isinstance(ended.outcome, Cancelled)
    assert (ended.may_have_run, effect) == (("ledger-1",), "unknown")


async def test_an_agent_that_resists_is_cancelled_all_the_same_and_left_behind(place: Place) -> None:
    async with busy(place, Setting(timing=Timing(grace=0.1))) as remote:
        remote.other.send_order("first", "resist")
        await remote.other.receive_async("first", "resists")
        outcome = await remote.turn.cancel()
        await remote.other.receive_async("first", "resisted")
        second = await remote.session.send("second")
        await remote.other.receive_async("speaking", "second")
        remote.other.send_order("first, resisting", "let go")
        await remote.other.receive_async("first", "did", "resist")
        remote.other.send_order("first", "say", "too late")
        remote.other.send_order("second", "end")
        await second.outcome()
        messages = await said(remote.session)

    assert isinstance(outcome, Cancelled)
    assert messages == [("user", "first"), ("assistant", "one …"), ("user", "second")]


async def test_a_turn_takes_steering_from_another_process_where_it_asks_for_it(place: Place) -> None:
    async with busy(place) as remote:
        steer = await remote.session.steer("left!")
        remote.other.send_order("first", "steering")
        (taken,) = await remote.other.receive_async("first", "took")
        await _end(remote, "first", "two")
        outcome, of_steer, messages = await remote.turn.outcome(), await steer.outcome(), await said(remote.session)

    assert taken == ["left!"]
    assert (outcome, of_steer) == (Completed(), Completed())
    assert messages == [("user", "first"), ("assistant", "one "), ("user", "left!"), ("assistant", "two")]


async def test_steering_that_is_never_taken_becomes_the_next_turn(place: Place) -> None:
    async with busy(place) as remote:
        waiting = await remote.session.send("later")
        steer = await remote.session.steer("left!")
        await _end(remote, "first", "two")
        await remote.other.receive_async("speaking", "left!")
        await _end(remote, "left!", "going left")
        await remote.other.receive_async("speaking", "later")
        await _end(remote, "later", "at last")
        assert await steer.outcome() == await waiting.outcome() == Completed()
        result = await said(remote.session)

    assert result == [
        ("user", "first"),
        ("assistant", "one two"),
        ("user", "left!"),
        ("assistant", "going left"),
        ("user", "later"),
        ("assistant", "at last"),
    ]


@pytest.mark.parametrize("approve", [True, False])
async def test_a_tool_call_waits_for_a_person_in_another_process(place: Place, approve: bool) -> None:
    async with busy(place) as remote:
        remote.other.send_order("first", "call", "wipe", {"at": "disk"})
        asked = (await seen(remote.turn, ToolCalled))[-1].body
        assert isinstance(asked, ToolCalled)
        with pytest.raises(Conflict):
            await remote.turn.approve(asked.call.id, arguments_hash="of something else")
        (shown,) = await remote.turn.calls()
        decide = remote.turn.approve if approve else remote.turn.deny
        await decide(asked.call.id, arguments_hash=shown.arguments_hash)
        remote.other.send_order("look", "return")
        answer = await remote.other.receive_async("first", "called")
        await _end(remote, "first", "so be it")
        assert await remote.turn.outcome() == Completed()

    assert answer[0] == ("returned" if approve else "ToolFailed")
    assert ("denied by a person" in answer[1]) is not approve


async def test_the_outcome_can_be_awaited_from_any_process(place: Place) -> None:
    async with busy(place) as remote:
        again = await remote.session.send("first", request_id="first")
        remote.other.send_order("first", "fail", "out of words")
        outcome, repeated, of_repeated = await remote.turn.outcome(), again.repeated, await again.outcome()

    assert outcome == of_repeated
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("the agent raised RuntimeError (turn trn_")
    assert repeated


@pytest.mark.parametrize("verb", ["undo", "redo", "retry", "edit"])
async def test_history_cannot_change_under_a_turn_of_another_process(place: Place, verb: str) -> None:
    async with busy(place) as remote:
        before = (await remote.session.read()).revision
        with pytest.raises(SessionBusy, match="cancel"):
            await _rewrite(remote.session, verb)
        after = (await remote.session.read()).revision

    assert before == after


# --- behind the running turn ----------------------------------------------------------------------------------------


async def test_inputs_sent_to_a_busy_session_wait_and_are_answered_in_order(place: Place) -> None:
    async with busy(place) as remote:
        turns = [await remote.session.send(text) for text in ("second", "third")]
        await _end(remote, "first", "two")
        for text in ("second", "third"):
            await remote.other.receive_async("speaking", text)
            await _end(remote, text, f"re: {text}")
        assert [await turn.outcome() for turn in turns] == [Completed(), Completed()]
        result = await said(remote.session)

    assert result == [
        ("user", "first"),
        ("assistant", "one two"),
        ("user", "second"),
        ("assistant", "re: second"),
        ("user", "third"),
        ("assistant", "re: third"),
    ]


async def test_an_app_does_not_write_into_the_turn_of_another_app(place: Place) -> None:
    async with (
        busy(place) as remote,
        backstay.open(place, agent=echo, notify=False, lease_seconds=LONG) as app,
    ):
        here = await app.session(remote.session.id)
        second = await here.send("second")
        assert (await second.read()).state == "waiting"
        await _end(remote, "first", "two")
        await remote.turn.outcome()
        remote.other.send_order("second", "say", "re: second")
        remote.other.send_order("second", "end")
        await second.outcome()
        result = await said(here)

    assert result == [
        ("user", "first"),
        ("assistant", "one two"),
        ("user", "second"),
        ("assistant", "re: second"),
    ]


async def test_a_sender_with_reject_gets_an_error_and_leaves_no_trace(place: Place) -> None:
    async with busy(place) as remote:
        before = (await remote.session.read()).revision
        with pytest.raises(SessionBusy):
            await remote.session.send("second", if_busy="reject")
        after = (await remote.session.read()).revision

    assert before == after


async def test_a_replacement_cancels_the_turn_elsewhere_keeps_its_output_and_runs(place: Place) -> None:
    async with busy(place) as remote:
        later = await remote.session.send("later")
        instead = await remote.session.send("instead", if_busy="replace")
        (history,) = await remote.other.receive_async("speaking", "instead")
        assert history == [("user", "first"), ("assistant", "one "), ("user", "instead")]
        await _end(remote, "instead", "better")
        await _end(remote, "later", "re: later")
        assert await instead.outcome() == await later.outcome() == Completed()
        outcome, messages = await remote.turn.outcome(), await said(remote.session)

    assert isinstance(outcome, Cancelled)
    assert messages == [
        ("user", "first"),
        ("assistant", "one …"),
        ("user", "instead"),
        ("assistant", "better"),
        ("user", "later"),
        ("assistant", "re: later"),
    ]


async def test_a_sender_may_use_a_fork_that_is_answered_while_the_turn_elsewhere_runs_on(place: Place) -> None:
    async with busy(place) as remote:
        await _end(remote, "first", "two")
        await remote.turn.outcome()
        running = await remote.session.send("second")
        await remote.other.receive_async("speaking", "second")
        forked = await remote.session.send("aside", if_busy="fork")
        await remote.other.receive_async("speaking", "aside")
        await _end(remote, "aside", "re: aside")
        assert await forked.outcome() == Completed()
        assert (await running.read()).state == "running"
        await _end(remote, "second", "re: second")
        assert await running.outcome() == Completed()
        aside, here = await said(await remote.app.session(forked.session)), await said(remote.session)

    assert forked.forked_from == remote.session.id != forked.session
    assert aside == [("user", "first"), ("assistant", "one two"), ("user", "aside"), ("assistant", "re: aside")]
    assert here == [("user", "first"), ("assistant", "one two"), ("user", "second"), ("assistant", "re: second")]


async def test_a_fork_of_a_session_busy_elsewhere_has_its_ended_turns(place: Place) -> None:
    async with busy(place) as remote:
        await _end(remote, "first", "two")
        await remote.turn.outcome()
        await remote.session.send("second")
        await remote.other.receive_async("speaking", "second")
        result = await said(await remote.session.fork())

    assert result == [("user", "first"), ("assistant", "one two")]


async def test_a_turn_waiting_behind_one_elsewhere_can_be_cancelled(place: Place) -> None:
    async with busy(place) as remote:
        second = await remote.session.send("second")
        outcome = await second.cancel()
        await _end(remote, "first", "two")
        await remote.turn.outcome()
        messages = await said(remote.session)

    assert isinstance(outcome, Cancelled)
    assert messages == [("user", "first"), ("assistant", "one two")]


# --- following ------------------------------------------------------------------------------------------------------


async def test_a_follower_in_another_process_sees_each_event_once_in_order(place: Place) -> None:
    async with busy(place) as remote:
        live = []
        async with listening(remote.session.follow()) as following:
            async for event in following:
                live.append(event)
                await _go_on(remote, event)
                if isinstance(event.body, TurnEnded) and event.turn == remote.turn.id:
                    break
        replay = await _replay(remote.session, len(live))

    assert [event.number for event in live] == list(range(1, len(live) + 1))
    assert live == replay
    assert "".join(event.body.text for event in live if isinstance(event.body, TextDelta)) == (
        "one " + "".join(f"{number} " for number in range(WORDS))
    )


async def test_a_follower_that_resumes_at_any_event_sees_the_rest_live(place: Place) -> None:
    async with busy(place) as remote:
        rest: dict[int, list[Event]] = {}
        live: list[Event] = []
        while not live or not isinstance(live[-1].body, TurnEnded):
            cursor = live[-1].cursor if live else 0
            live.append(await _next(remote.session, cursor))
            await _go_on(remote, live[-1])
        for event in live[:-1]:
            rest[event.number] = await _replay(remote.session, len(live) - event.number, event.cursor)

    assert [event.number for event in live] == list(range(1, len(live) + 1))
    assert all(found == live[number:] for number, found in rest.items())


WORDS = 12


async def _go_on(remote: TurnInChild, event: Event) -> None:
    """The next step in the other process after this event was seen here: output, an inbox message, a tool, the end."""
    match event.body:
        case TextDelta(text="one "):
            await remote.session.rename("seen live")
            for number in range(WORDS):
                remote.other.send_order("first", "say", f"{number} ")
            remote.other.send_order("first", "call", "look", {"at": "sky"})
        case ToolCalled():
            remote.other.send_order("look", "return")
        case ToolReturned():
            await remote.session.steer("left!")
            remote.other.send_order("first", "steering")
        case SteeringTaken():
            remote.other.send_order("first", "end")
        case _:
            pass


async def _next(session: Session, cursor: Cursor | int) -> Event:
    async with listening(session.follow(cursor)) as following:
        return await anext(following)


async def _replay(session: Session, count: int, cursor: Cursor | int = 0) -> list[Event]:
    async with listening(session.follow(cursor)) as following:
        return [await anext(following) for _ in range(count)]


# --- steps ----------------------------------------------------------------------------------------------------------


async def _end(remote: TurnInChild, turn: str, words: str) -> None:
    """Let the turn in the other process send its last output."""
    remote.other.send_order(turn, "say", words)
    remote.other.send_order(turn, "end")


async def _rewrite(session: Session, verb: str) -> None:
    match verb:
        case "undo":
            await session.undo()
        case "redo":
            await session.redo()
        case "retry":
            await session.retry()
        case _:
            await session.edit((await session.messages())[0].id, "something else")
