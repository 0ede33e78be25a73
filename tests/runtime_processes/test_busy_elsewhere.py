"""The running turn is in another process: everything one can do to it or behind it works as if it were here."""

from typing import Any

import pytest

import backstay
from backstay import Timing
from backstay.errors import Conflict, SessionBusy
from backstay.model.event import Cursor, Event, SteeringTaken, TextDelta, ToolCalled, ToolReturned, TurnEnded
from backstay.model.turn import Cancelled, Completed, Failed, Outcome
from backstay.runtime.session import SessionHandle
from backstay.runtime.turn import TurnHandle
from tests.databases import Place
from tests.runtime_processes.programs import LONG, Setting
from tests.runtime_processes.stage import Stage, busy, echo, listening, play, said, seen

# --- the running turn -----------------------------------------------------------------------------------------------


def test_a_turn_can_be_cancelled_from_another_process_and_keeps_what_it_said(place: Place) -> None:
    async def story() -> tuple[Outcome, list[tuple[str, str]]]:
        async with busy(place) as stage:
            return await stage.turn.cancel(), await said(stage.session)

    outcome, messages = play(story())

    assert isinstance(outcome, Cancelled)
    assert messages == [("user", "first"), ("assistant", "one …")]


def test_a_cancelled_turns_tool_call_is_kept_and_may_have_run(place: Place) -> None:
    async def story() -> tuple[TurnEnded, str]:
        async with busy(place) as stage:
            stage.other.order("first", "call", "look", {"at": "sky"})
            await stage.other.heard("inside", "look")
            await stage.turn.cancel()
            (ended,) = [event.body for event in await seen(stage.turn, TurnEnded) if isinstance(event.body, TurnEnded)]
            (call,) = await stage.turn.calls()
            return ended, call.effect

    ended, effect = play(story())

    assert isinstance(ended.outcome, Cancelled)
    assert (ended.may_have_run, effect) == (("ledger-1",), "unknown")


def test_an_agent_that_resists_is_cancelled_all_the_same_and_left_behind(place: Place) -> None:
    async def story() -> tuple[Outcome, list[tuple[str, str]]]:
        async with busy(place, Setting(timing=Timing(grace=0.1))) as stage:
            stage.other.order("first", "resist")
            outcome = await stage.turn.cancel()
            await stage.other.heard("first", "resisted")
            second = await stage.session.send("second")
            await stage.other.heard("speaking", "second")
            stage.other.order("first, resisting", "let go")
            await stage.other.heard("first", "did", "resist")
            stage.other.order("first", "say", "too late")
            stage.other.order("second", "end")
            await second.outcome()
            return outcome, await said(stage.session)

    outcome, messages = play(story())

    assert isinstance(outcome, Cancelled)
    assert messages == [("user", "first"), ("assistant", "one …"), ("user", "second")]


def test_a_turn_takes_steering_from_another_process_where_it_asks_for_it(place: Place) -> None:
    async def story() -> tuple[list[str], Outcome, Outcome, list[tuple[str, str]]]:
        async with busy(place) as stage:
            steer = await stage.session.steer("left!")
            stage.other.order("first", "steering")
            (taken,) = await stage.other.heard("first", "took")
            await _end(stage, "first", "two")
            return taken, await stage.turn.outcome(), await steer.outcome(), await said(stage.session)

    taken, outcome, of_steer, messages = play(story())

    assert taken == ["left!"]
    assert (outcome, of_steer) == (Completed(), Completed())
    assert messages == [("user", "first"), ("assistant", "one "), ("user", "left!"), ("assistant", "two")]


def test_steering_that_is_never_taken_becomes_the_next_turn(place: Place) -> None:
    async def story() -> list[tuple[str, str]]:
        async with busy(place) as stage:
            waiting = await stage.session.send("later")
            steer = await stage.session.steer("left!")
            await _end(stage, "first", "two")
            await stage.other.heard("speaking", "left!")
            await _end(stage, "left!", "going left")
            await stage.other.heard("speaking", "later")
            await _end(stage, "later", "at last")
            assert await steer.outcome() == await waiting.outcome() == Completed()
            return await said(stage.session)

    assert play(story()) == [
        ("user", "first"),
        ("assistant", "one two"),
        ("user", "left!"),
        ("assistant", "going left"),
        ("user", "later"),
        ("assistant", "at last"),
    ]


@pytest.mark.parametrize("approve", [True, False])
def test_a_tool_call_waits_for_a_person_in_another_process(place: Place, approve: bool) -> None:
    async def story() -> tuple[Any, ...]:
        async with busy(place) as stage:
            stage.other.order("first", "call", "wipe", {"at": "disk"})
            asked = (await seen(stage.turn, ToolCalled))[-1].body
            assert isinstance(asked, ToolCalled)
            with pytest.raises(Conflict):
                await stage.turn.approve(asked.call.id, arguments_hash="of something else")
            (shown,) = await stage.turn.calls()
            decide = stage.turn.approve if approve else stage.turn.deny
            await decide(asked.call.id, arguments_hash=shown.arguments_hash)
            stage.other.order("look", "return")
            answer = await stage.other.heard("first", "called")
            await _end(stage, "first", "so be it")
            assert await stage.turn.outcome() == Completed()
            return answer

    answer = play(story())

    assert answer[0] == ("returned" if approve else "ToolFailed")
    assert ("denied by a person" in answer[1]) is not approve


def test_the_outcome_is_waited_for_wherever_the_turn_runs(place: Place) -> None:
    async def story() -> tuple[Outcome, bool, Outcome]:
        async with busy(place) as stage:
            again = await stage.session.send("first", request_id="first")
            stage.other.order("first", "fail", "out of words")
            return await stage.turn.outcome(), again.repeated, await again.outcome()

    outcome, repeated, of_repeated = play(story())

    assert outcome == of_repeated == Failed("RuntimeError: out of words")
    assert repeated


@pytest.mark.parametrize("verb", ["undo", "redo", "retry", "edit"])
def test_history_is_not_pulled_from_under_a_turn_that_runs_elsewhere(place: Place, verb: str) -> None:
    async def story() -> tuple[int, int]:
        async with busy(place) as stage:
            before = (await stage.session.read()).revision
            with pytest.raises(SessionBusy, match="cancel"):
                await _rewrite(stage.session, verb)
            return before, (await stage.session.read()).revision

    before, after = play(story())

    assert before == after


# --- behind the running turn ----------------------------------------------------------------------------------------


def test_what_is_sent_meanwhile_waits_and_is_answered_in_order(place: Place) -> None:
    async def story() -> list[tuple[str, str]]:
        async with busy(place) as stage:
            turns = [await stage.session.send(text) for text in ("second", "third")]
            await _end(stage, "first", "two")
            for text in ("second", "third"):
                await stage.other.heard("speaking", text)
                await _end(stage, text, f"re: {text}")
            assert [await turn.outcome() for turn in turns] == [Completed(), Completed()]
            return await said(stage.session)

    assert play(story()) == [
        ("user", "first"),
        ("assistant", "one two"),
        ("user", "second"),
        ("assistant", "re: second"),
        ("user", "third"),
        ("assistant", "re: third"),
    ]


def test_an_app_that_serves_the_agent_too_does_not_speak_into_another_ones_turn(place: Place) -> None:
    async def story() -> list[tuple[str, str]]:
        async with (
            busy(place) as stage,
            backstay.open(place, agent=echo, prompt=False, lease_seconds=LONG) as app,
        ):
            here = await app.session(stage.session.id)
            second = await here.send("second")
            assert (await second.read()).state == "waiting"
            await _end(stage, "first", "two")
            await stage.turn.outcome()
            stage.other.order("second", "say", "re: second")
            stage.other.order("second", "end")
            await second.outcome()
            return await said(here)

    assert play(story()) == [
        ("user", "first"),
        ("assistant", "one two"),
        ("user", "second"),
        ("assistant", "re: second"),
    ]


def test_a_sender_who_will_not_wait_is_refused_and_leaves_no_trace(place: Place) -> None:
    async def story() -> tuple[int, int]:
        async with busy(place) as stage:
            before = (await stage.session.read()).revision
            with pytest.raises(SessionBusy):
                await stage.session.send("second", if_busy="reject")
            return before, (await stage.session.read()).revision

    before, after = play(story())

    assert before == after


def test_a_replacement_cancels_the_turn_elsewhere_keeping_its_words_and_runs_next(place: Place) -> None:
    async def story() -> tuple[Outcome, list[tuple[str, str]]]:
        async with busy(place) as stage:
            later = await stage.session.send("later")
            instead = await stage.session.send("instead", if_busy="replace")
            (history,) = await stage.other.heard("speaking", "instead")
            assert history == [("user", "first"), ("assistant", "one "), ("user", "instead")]
            await _end(stage, "instead", "better")
            await _end(stage, "later", "re: later")
            assert await instead.outcome() == await later.outcome() == Completed()
            return await stage.turn.outcome(), await said(stage.session)

    outcome, messages = play(story())

    assert isinstance(outcome, Cancelled)
    assert messages == [
        ("user", "first"),
        ("assistant", "one …"),
        ("user", "instead"),
        ("assistant", "better"),
        ("user", "later"),
        ("assistant", "re: later"),
    ]


def test_a_sender_may_go_to_a_fork_that_is_answered_while_the_turn_elsewhere_runs_on(place: Place) -> None:
    async def story() -> tuple[TurnHandle, SessionHandle, list[tuple[str, str]], list[tuple[str, str]]]:
        async with busy(place) as stage:
            await _end(stage, "first", "two")
            await stage.turn.outcome()
            running = await stage.session.send("second")
            await stage.other.heard("speaking", "second")
            forked = await stage.session.send("aside", if_busy="fork")
            await stage.other.heard("speaking", "aside")
            await _end(stage, "aside", "re: aside")
            assert await forked.outcome() == Completed()
            assert (await running.read()).state == "running"
            await _end(stage, "second", "re: second")
            assert await running.outcome() == Completed()
            aside = await stage.app.session(forked.session)
            return forked, stage.session, await said(aside), await said(stage.session)

    forked, session, aside, here = play(story())

    assert forked.forked_from == session.id != forked.session
    assert aside == [("user", "first"), ("assistant", "one two"), ("user", "aside"), ("assistant", "re: aside")]
    assert here == [("user", "first"), ("assistant", "one two"), ("user", "second"), ("assistant", "re: second")]


def test_a_fork_of_a_session_that_speaks_elsewhere_has_its_ended_turns(place: Place) -> None:
    async def story() -> list[tuple[str, str]]:
        async with busy(place) as stage:
            await _end(stage, "first", "two")
            await stage.turn.outcome()
            await stage.session.send("second")
            await stage.other.heard("speaking", "second")
            return await said(await stage.session.fork())

    assert play(story()) == [("user", "first"), ("assistant", "one two")]


def test_what_waits_behind_a_turn_elsewhere_can_be_cancelled(place: Place) -> None:
    async def story() -> tuple[Outcome, list[tuple[str, str]]]:
        async with busy(place) as stage:
            second = await stage.session.send("second")
            outcome = await second.cancel()
            await _end(stage, "first", "two")
            await stage.turn.outcome()
            return outcome, await said(stage.session)

    outcome, messages = play(story())

    assert isinstance(outcome, Cancelled)
    assert messages == [("user", "first"), ("assistant", "one two")]


# --- following ------------------------------------------------------------------------------------------------------


def test_who_follows_from_another_process_sees_every_event_once_and_in_order(place: Place) -> None:
    async def story() -> tuple[list[Event], list[Event]]:
        async with busy(place) as stage:
            live = []
            async with listening(stage.session.follow()) as following:
                async for event in following:
                    live.append(event)
                    await _go_on(stage, event)
                    if isinstance(event.body, TurnEnded) and event.turn == stage.turn.id:
                        break
            return live, await _replay(stage.session, len(live))

    live, replay = play(story())

    assert [event.number for event in live] == list(range(1, len(live) + 1))
    assert live == replay
    assert "".join(event.body.text for event in live if isinstance(event.body, TextDelta)) == (
        "one " + "".join(f"{number} " for number in range(WORDS))
    )


def test_who_comes_back_at_any_event_sees_the_rest_of_a_live_story(place: Place) -> None:
    async def story() -> tuple[list[Event], dict[int, list[Event]]]:
        async with busy(place) as stage:
            rest: dict[int, list[Event]] = {}
            live: list[Event] = []
            while not live or not isinstance(live[-1].body, TurnEnded):
                cursor = live[-1].cursor if live else 0
                live.append(await _next(stage.session, cursor))
                await _go_on(stage, live[-1])
            for event in live[:-1]:
                rest[event.number] = await _replay(stage.session, len(live) - event.number, event.cursor)
            return live, rest

    live, rest = play(story())

    assert [event.number for event in live] == list(range(1, len(live) + 1))
    assert all(found == live[number:] for number, found in rest.items())


WORDS = 12


async def _go_on(stage: Stage, event: Event) -> None:
    """What happens in the other process once this event was seen here: words, mail, a tool, the end."""
    match event.body:
        case TextDelta(text="one "):
            await stage.session.rename("seen live")
            for number in range(WORDS):
                stage.other.order("first", "say", f"{number} ")
            stage.other.order("first", "call", "look", {"at": "sky"})
        case ToolCalled():
            stage.other.order("look", "return")
        case ToolReturned():
            await stage.session.steer("left!")
            stage.other.order("first", "steering")
        case SteeringTaken():
            stage.other.order("first", "end")
        case _:
            pass


async def _next(session: SessionHandle, cursor: Cursor | int) -> Event:
    async with listening(session.follow(cursor)) as following:
        return await anext(following)


async def _replay(session: SessionHandle, count: int, cursor: Cursor | int = 0) -> list[Event]:
    async with listening(session.follow(cursor)) as following:
        return [await anext(following) for _ in range(count)]


# --- steps ----------------------------------------------------------------------------------------------------------


async def _end(stage: Stage, turn: str, words: str) -> None:
    """Let the turn in the other process say its last words."""
    stage.other.order(turn, "say", words)
    stage.other.order(turn, "end")


async def _rewrite(session: SessionHandle, verb: str) -> None:
    match verb:
        case "undo":
            await session.undo()
        case "redo":
            await session.redo()
        case "retry":
            await session.retry()
        case _:
            await session.edit((await session.messages())[0].id, "something else")
