"""The tail of a compaction: never separates a call from its result, keeps the last input, and is bounded."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from backstay import Text, ToolCall, ToolResult
from backstay.model.content import Part, Role
from backstay.model.history.projection import INTERRUPTED, readable
from backstay.model.history.tail import tail_of
from backstay.model.history.token_estimate import estimate
from backstay.model.ids import MessageId
from backstay.model.message import Message


def weigh(message: Message) -> int:
    """As many tokens as letters."""
    return len(message.text)


def history(shape: Sequence[tuple[str, int]], summaries: int = 0) -> list[Message]:
    """Messages of these kinds and lengths, after so many summaries. A `tools` is a call and its results, in several."""
    said: list[tuple[Role, list[Part]]] = [("summary", [Text("s" * 5)]) for _ in range(summaries)]
    for number, (kind, size) in enumerate(shape):
        if kind == "tools":
            said.append(("assistant", [Text("t" * size), *(ToolCall(f"{number}-{one}", "look") for one in "ab")]))
            said.append(("tool", [Text("r" * size), ToolResult(f"{number}-a", "found")]))
            said.append(("tool", [ToolResult(f"{number}-b", "found")]))
        else:
            said.append(("user" if kind == "user" else "assistant", [Text("w" * size)]))
    return [
        Message(id=MessageId(f"m{place}"), position=place, turn=None, role=role, parts=tuple(parts), at=0)
        for place, (role, parts) in enumerate(said)
    ]


shapes = st.lists(st.tuples(st.sampled_from(["user", "assistant", "tools"]), st.integers(0, 30)), max_size=12)
summaries = st.integers(0, 2)
keeps = st.integers(0, 200)


def last_input(messages: Sequence[Message]) -> int:
    return max((message.position for message in messages if message.role == "user"), default=len(messages) - 1)


@given(shape=shapes, summaries=summaries, keep=keeps)
def test_no_call_is_separated_from_its_result(shape: list[tuple[str, int]], summaries: int, keep: int) -> None:
    messages = history(shape, summaries)

    begin = tail_of(messages, keep, weigh)

    for side in (messages[:begin], messages[begin:]):
        shown = readable(side)
        results = [part for message in shown for part in message.parts if isinstance(part, ToolResult)]
        assert len(results) == sum(isinstance(part, ToolResult) for said in side for part in said.parts)
        assert all(result.output != INTERRUPTED for result in results)


@given(shape=shapes, summaries=summaries, keep=keeps)
def test_the_last_input_and_what_follows_it_are_always_kept(
    shape: list[tuple[str, int]], summaries: int, keep: int
) -> None:
    messages = history(shape, summaries)

    assert tail_of(messages, keep, weigh) <= max(0, last_input(messages))


@given(shape=shapes, summaries=summaries, keep=keeps, at=st.integers(0, 40))
def test_the_tail_begins_no_later_than_a_given_input(
    shape: list[tuple[str, int]], summaries: int, keep: int, at: int
) -> None:
    messages = history(shape, summaries)

    assert tail_of(messages, keep, weigh, input=at) <= at


@given(shape=shapes, summaries=summaries, keep=keeps)
def test_the_tail_takes_no_more_than_it_may_unless_it_must(
    shape: list[tuple[str, int]], summaries: int, keep: int
) -> None:
    messages = history(shape, summaries)

    begin = tail_of(messages, keep, weigh)

    if begin and sum(map(weigh, messages[begin:])) > keep:
        assert begin == max(place for place in range(last_input(messages) + 1) if messages[place].role != "tool")


@given(shape=shapes, summaries=summaries, keep=keeps)
def test_the_tail_takes_all_it_may_from_an_input_on(shape: list[tuple[str, int]], summaries: int, keep: int) -> None:
    messages = history(shape, summaries)

    begin = tail_of(messages, keep, weigh)

    earlier = [place for place in range(1, begin) if messages[place].role == "user"]
    assert all(sum(map(weigh, messages[place:])) > keep for place in earlier)


@given(shape=shapes, summaries=summaries, keep=keeps)
def test_a_compaction_leaves_out_at_least_one_message_or_none_happens(
    shape: list[tuple[str, int]], summaries: int, keep: int
) -> None:
    messages = history(shape, summaries)

    begin = tail_of(messages, keep, weigh)

    assert begin == 0 or any(message.role != "summary" for message in messages[:begin])
    assert begin < max(1, len(messages))


def test_the_tail_begins_with_an_input_if_possible() -> None:
    messages = history([("user", 5), ("assistant", 5), ("user", 5), ("assistant", 5), ("user", 5)])

    assert [tail_of(messages, keep, weigh) for keep in (0, 5, 9, 10, 14, 15, 20, 24)] == [4, 4, 4, 4, 4, 2, 2, 2]


def test_a_window_that_fits_or_holds_nothing_to_leave_is_left_alone() -> None:
    assert tail_of([], 10, weigh) == 0
    assert tail_of(history([("user", 50)]), 10, weigh) == 0
    assert tail_of(history([("user", 50), ("assistant", 50)], summaries=1), 10, weigh) == 0
    assert tail_of(history([("tools", 50)]), 10, weigh) == 0


@given(text=st.text(max_size=200))
def test_an_estimate_is_about_a_quarter_of_the_bytes(text: str) -> None:
    (message,) = history([("user", 0)])
    said = Message(id=message.id, position=0, turn=None, role="user", parts=(Text(text),), at=0)

    assert 0 <= estimate(said) * 4 - len(text.encode()) <= 4 * 5
