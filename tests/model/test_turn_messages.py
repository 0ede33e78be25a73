"""The fold of a turn's events into messages: roles, order, steering, and the position of each part."""

import pytest

from backstay.model.content import Custom, Part, Role, Text, Thought, ToolCall, ToolResult, Usage
from backstay.model.event import (
    CancelRequested,
    CustomReported,
    EventBody,
    SteeringTaken,
    TextDelta,
    ThoughtDelta,
    ToolCalled,
    ToolReturned,
    TurnStarted,
    UsageReported,
)
from backstay.model.history.turn_messages import PartPosition, TurnMessages, messages_of
from backstay.model.ids import TurnId

LOOK, READ = ToolCall("c1", "look"), ToolCall("c2", "read")
SEEN, TEXT = ToolResult("c1", "seen"), ToolResult("c2", "text")


def called(call: ToolCall) -> ToolCalled:
    return ToolCalled(call, f"trn_1.{call.id}")


def steered(text: str) -> SteeringTaken:
    return SteeringTaken(TurnId("trn_2"), (Text(text),))


Shape = list[tuple[Role, tuple[Part, ...]]]

FOLDS: dict[str, tuple[list[EventBody], Shape]] = {
    "no events": ([], []),
    "deltas are joined": ([TextDelta("a"), TextDelta("b")], [("assistant", (Text("ab"),))]),
    "thoughts are parts of their own": (
        [ThoughtDelta("h"), ThoughtDelta("m"), TextDelta("a"), ThoughtDelta("x")],
        [("assistant", (Thought("hm"), Text("a"), Thought("x")))],
    ),
    "a call follows its text": (
        [TextDelta("a"), called(LOOK)],
        [("assistant", (Text("a"), LOOK))],
    ),
    "results are a message of the tool": (
        [called(LOOK), called(READ), ToolReturned(SEEN), ToolReturned(TEXT), TextDelta("a")],
        [("assistant", (LOOK, READ)), ("tool", (SEEN, TEXT)), ("assistant", (Text("a"),))],
    ),
    "custom bodies keep their order": (
        [TextDelta("a"), CustomReported("chart", [1]), TextDelta("b")],
        [("assistant", (Text("a"), Custom("chart", [1]), Text("b")))],
    ),
    "other events add nothing": (
        [TurnStarted("bot"), TextDelta("a"), UsageReported(Usage(cost=1)), CancelRequested(), TextDelta("b")],
        [("assistant", (Text("ab"),))],
    ),
    "steering divides the answer": (
        [TextDelta("a"), steered("no, left"), TextDelta("b")],
        [("assistant", (Text("a"),)), ("user", (Text("no, left"),)), ("assistant", (Text("b"),))],
    ),
    "steering waits for the result of an open call": (
        [called(LOOK), steered("left"), TextDelta("a"), ToolReturned(SEEN), TextDelta("b")],
        [
            ("assistant", (LOOK, Text("a"))),
            ("tool", (SEEN,)),
            ("user", (Text("left"),)),
            ("assistant", (Text("b"),)),
        ],
    ),
    "steering waits for all open calls": (
        [called(LOOK), called(READ), steered("one"), ToolReturned(SEEN), steered("two"), ToolReturned(TEXT)],
        [
            ("assistant", (LOOK, READ)),
            ("tool", (SEEN, TEXT)),
            ("user", (Text("one"),)),
            ("user", (Text("two"),)),
        ],
    ),
    "steering before an open call that never returned comes last": (
        [called(LOOK), steered("left")],
        [("assistant", (LOOK,)), ("user", (Text("left"),))],
    ),
}


@pytest.mark.parametrize(("events", "expected"), FOLDS.values(), ids=FOLDS)
def test_events_become_messages(events: list[EventBody], expected: Shape) -> None:
    assert [(message.role, message.parts) for message in messages_of(events, partial=False)] == expected


@pytest.mark.parametrize(("events", "expected"), FOLDS.values(), ids=FOLDS)
def test_a_complete_turn_has_no_partial_message(events: list[EventBody], expected: Shape) -> None:
    assert not any(message.partial for message in messages_of(events, partial=False))


@pytest.mark.parametrize(
    ("events", "partial"),
    [
        ([TextDelta("a")], [True]),
        ([called(LOOK), ToolReturned(SEEN)], [True, False]),
        ([TextDelta("a"), steered("left")], [True, False]),
        ([called(LOOK), ToolReturned(SEEN), TextDelta("b")], [False, False, True]),
        ([], []),
    ],
)
def test_only_the_last_message_of_the_agent_is_marked_as_cut_off(events: list[EventBody], partial: list[bool]) -> None:
    assert [message.partial for message in messages_of(events, partial=True)] == partial


@pytest.mark.parametrize(("events", "expected"), FOLDS.values(), ids=FOLDS)
def test_the_position_of_a_part_is_known_immediately(events: list[EventBody], expected: Shape) -> None:
    fold = TurnMessages()
    positions = [(event, fold.add(event)) for event in events]
    messages = fold.close(partial=False)

    for event, position in positions:
        if position is not None:
            part = messages[position.message].parts[position.part]
            match event:
                case TextDelta(text=text) | ThoughtDelta(text=text):
                    assert isinstance(part, Text | Thought)
                    assert text in part.text
                case ToolCalled(call=call):
                    assert part == call
                case ToolReturned(result=result):
                    assert part == result
                case _:
                    assert isinstance(part, Custom)


def test_the_deltas_of_one_text_have_one_position() -> None:
    fold = TurnMessages()

    assert [fold.add(TextDelta("a")), fold.add(TextDelta("b"))] == [PartPosition(0, 0)] * 2
    assert fold.add(called(LOOK)) == PartPosition(0, 1)
    assert fold.add(ToolReturned(SEEN)) == PartPosition(1, 0)
    assert fold.add(UsageReported(Usage())) is None


def test_a_paused_fold_shows_the_steering_that_waits() -> None:
    fold = TurnMessages()
    for event in (TextDelta("a"), called(LOOK), steered("left")):
        fold.add(event)
    messages, waiting = fold.pause()

    assert [(message.role, message.parts) for message in messages] == [("assistant", (Text("a"), LOOK))]
    assert waiting == [(Text("left"),)]
