"""The display of a chat: finished blocks once, the tail as it is, the same live and replayed."""

import io

from hypothesis import given, settings
from hypothesis import strategies as st

from backstay.cli.chat.blocks import Block, ChatLog, NoteBlock, PersonBlock, TextBlock, ThoughtBlock, ToolBlock
from backstay.cli.chat.markdown_stream import LONGEST, WordStream
from backstay.cli.chat.terminal_style import TerminalStyle, plain_text
from backstay.model.content import Text, ToolCall, ToolResult
from backstay.model.event import (
    ApprovalDecided,
    Event,
    EventBody,
    ScheduleFired,
    ScheduleMissed,
    SessionRenamed,
    SteeringTaken,
    TextDelta,
    ThoughtDelta,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnFolded,
    TurnStarted,
    TurnSubmitted,
    WindowOpened,
)
from backstay.model.ids import MessageId, ScheduleId, SessionId, TurnId, WindowId
from backstay.model.message import Message
from backstay.model.turn import Cancelled, Completed, Interrupted

SESSION, TURN, NEXT = SessionId("ses_1"), TurnId("trn_1"), TurnId("trn_2")


def drawn_for(*bodies: EventBody | tuple[TurnId, EventBody], log: ChatLog | None = None) -> tuple[list[Block], ChatLog]:
    """The blocks drawn for these events, one a second, and the state of the log."""
    log = log or ChatLog()
    drawn: list[Block] = []
    for one in bodies:
        turn, body = one if isinstance(one, tuple) else (TURN, one)
        number = log.seen + 1
        drawn += log.apply(
            Event(session=SESSION, number=number, last=number, fence=1, at=number * 1_000, turn=turn, body=body)
        )
    return drawn, log


def said(text: str) -> TurnStarted:
    return TurnStarted(agent="default", message=message("user", text))


def message(role: str, text: str, *, partial: bool = False) -> Message:
    made = {"id": MessageId("msg_1"), "position": 0, "turn": TURN, "at": 0}
    return Message(role="user" if role == "user" else "assistant", parts=(Text(text),), partial=partial, **made)  # type: ignore[arg-type]  # the dict's values are of many kinds


def test_a_schedule_is_noted_unless_its_message_came_in_time() -> None:
    schedule = ScheduleId("sch_1")
    blocks, _ = drawn_for(
        ScheduleFired(schedule, 1_000, late=400),
        ScheduleFired(schedule, 1_000, late=240_000, missed=1),
        ScheduleMissed(schedule, 1_000, "skipped", missed=3),
        ScheduleMissed(schedule, 1_000, "asked"),
        ScheduleMissed(schedule, 1_000, "failed", reason="it was ended"),
    )
    assert [block.text for block in blocks if isinstance(block, NoteBlock)] == [
        "schedule: 4 minutes late, 1 due time left out",
        "schedule: 3 due times left out",
        "schedule: missed; decide with `backstay schedules run sch_1` or `skip`",
        "schedule: the message could not be sent: it was ended",
    ]


# --- words ----------------------------------------------------------------------------------------------------------

MARKDOWN = st.lists(
    st.sampled_from(
        [
            "# head\n",
            "\n",
            "para ",
            "graph\n",
            "- item\n",
            "  more\n",
            "```py\n",
            "```\n",
            "> quote\n",
            "a|b\n",
            "-|-\n",
        ]
    )
).map("".join)


@settings(deadline=None)
@given(st.lists(st.one_of(st.text(max_size=40), MARKDOWN), max_size=30))
def test_blocks_and_tail_together_are_the_whole_text(pieces: list[str]) -> None:
    stream = WordStream()
    blocks = [block for piece in pieces for block in stream.feed(piece)] + stream.close()

    assert "".join("".join(blocks).split()) == "".join("".join(pieces).split())


@settings(deadline=None)
@given(MARKDOWN, st.integers(1, 7))
def test_a_finished_block_is_drawn_as_it_would_be_in_the_whole(text: str, size: int) -> None:
    stream = WordStream()
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    blocks = [block for piece in pieces for block in stream.feed(piece)] + stream.close()

    def words_of(*texts: str) -> str:
        return "".join("".join(TerminalStyle(io.StringIO()).blocks([TextBlock(text)], 80) for text in texts).split())

    assert words_of(*blocks) == words_of(text)


def test_a_block_is_finished_when_the_next_begins() -> None:
    stream = WordStream()

    assert stream.feed("one\n") == []
    assert stream.feed("\n") == []
    assert stream.feed("two\n") == ["one\n\n"]
    assert stream.tail == "two\n"


def test_an_empty_line_in_a_code_block_ends_nothing() -> None:
    stream = WordStream()

    assert stream.feed("```py\na = 1\n\nb = 2\n") == []
    assert stream.feed("```\nafter\n") == ["```py\na = 1\n\nb = 2\n```\n"]


def test_a_block_without_end_is_cut_at_a_line_and_code_stays_code() -> None:
    stream = WordStream()
    line = "x" * 63 + "\n"
    blocks = stream.feed("```py\n" + line * (3 * LONGEST // 64))

    assert len(stream.tail) <= LONGEST
    assert all(block.startswith("```py\n") and block.endswith(line) for block in blocks)
    assert stream.tail.startswith("```py\n")


def test_an_endless_line_is_cut() -> None:
    stream = WordStream()
    blocks = stream.feed("x" * (3 * LONGEST + 1))

    assert [len(block) for block in blocks] == [LONGEST] * 3
    assert stream.tail == "x"


# --- turns ----------------------------------------------------------------------------------------------------------


def test_text_thoughts_and_tools_are_drawn_in_their_order() -> None:
    drawn, log = drawn_for(
        said("hi"),
        ThoughtDelta("hmm"),
        TextDelta("Let me look."),
        ToolCalled(ToolCall("c1", "clock", {"zone": "UTC"}), "k"),
        ToolReturned(ToolResult("c1", "noon")),
        TextDelta("It is noon."),
        TurnEnded(Completed()),
    )

    assert drawn == [
        PersonBlock("hi"),
        ThoughtBlock("hmm"),
        TextBlock("Let me look."),
        ToolBlock(name="clock", arguments='{"zone":"UTC"}', result="noon", tone="good", ms=1_000),
        TextBlock("It is noon."),
    ]
    assert (log.tail, log.running) == ([], None)


def test_unfinished_blocks_stay_in_the_tail_and_are_not_drawn() -> None:
    drawn, log = drawn_for(said("hi"), TextDelta("I am "), ToolCalled(ToolCall("c1", "clock"), "k"), TextDelta("tick"))

    assert drawn == [PersonBlock("hi"), TextBlock("I am ")]
    assert [type(block) for block in log.tail] == [TextBlock, ToolBlock]
    assert log.running == TURN


def test_waiting_messages_and_steering_are_shown() -> None:
    _, log = drawn_for(said("one"), (NEXT, TurnSubmitted(agent="default", parts=(Text("two"),))))
    assert log.tail == [PersonBlock("two", "waiting")]

    drawn, log = drawn_for(SteeringTaken(NEXT, (Text("two"),)), log=log)
    assert drawn == [PersonBlock("two", "steering")]
    assert log.tail == []


def test_each_outcome_but_completion_is_shown_with_the_calls_that_may_have_run() -> None:
    call = ToolCalled(ToolCall("c1", "pay", {"amount": 5}), "k")
    drawn, _ = drawn_for(said("pay"), call, TurnEnded(Interrupted("its process died"), may_have_run=("c1",)))
    cancelled, _ = drawn_for(said("x"), TextDelta("half"), TurnEnded(Cancelled()))

    assert drawn[1] == ToolBlock(name="pay", arguments='{"amount":5}', result="may have run", tone="bad")
    assert isinstance(drawn[2], NoteBlock)
    assert drawn[2].text.startswith("✗ interrupted: its process died")
    assert [plain_text(block) for block in cancelled[1:]] == ["half", "[✗ cancelled; the partial answer is kept]"]


def test_only_tools_of_the_last_turn_and_its_predecessors_can_be_allowed_again() -> None:
    call = ToolCalled(ToolCall("c1", "pay", {"amount": 5}), "k")
    drawn, log = drawn_for(said("pay"), call, TurnEnded(Interrupted("its process died"), may_have_run=("c1",)))
    assert drawn[-1] == NoteBlock('pay may have run with {"amount":5}: /rerun allows it again', "question")
    assert [*log.in_doubt, log.interrupted] == [(TURN, "c1"), TURN]

    drawn_for((NEXT, said("pay")), log=log)
    assert [*log.in_doubt, log.interrupted] == [(TURN, "c1"), None]

    drawn_for((NEXT, TurnEnded(Interrupted("once more"))), (TurnId("trn_3"), TurnStarted("default")), log=log)
    assert [*log.in_doubt, log.interrupted] == [None]


def test_a_folded_turn_is_shown_whole_and_marked_if_partly_shown_before() -> None:
    fold = TurnFolded(
        first=1,
        last=3,
        agent="default",
        outcome=Interrupted(),
        messages=(message("user", "hi"), message("assistant", "hel", partial=True)),
    )
    unseen, _ = drawn_for(fold)
    seen, _ = drawn_for(fold, log=ChatLog(seen=2))

    assert unseen[:3] == [PersonBlock("hi"), TextBlock("hel"), NoteBlock("interrupted here", "bad")]
    assert seen[0] == NoteBlock("shown again from its beginning:")
    assert seen[1:] == unseen


def test_changes_of_the_session_are_shown() -> None:
    window = WindowOpened(WindowId("win_2"), WindowId("win_1"), "undo", 2)
    drawn, _ = drawn_for(window, SessionRenamed("Tea\x1b[2J", "person"))

    assert [plain_text(block) for block in drawn] == ["[↶ the last turn was undone]", "[title: Tea␛[2J]"]


@settings(deadline=None)
@given(st.lists(st.text(max_size=30), max_size=20), st.integers(20, 120))
def test_no_text_becomes_a_control_sequence(pieces: list[str], columns: int) -> None:
    drawn, log = drawn_for(said("".join(pieces)), *(TextDelta(piece) for piece in pieces if piece))
    plain = TerminalStyle(io.StringIO()).blocks([*drawn, *log.tail], columns)

    # Output to a file has no colours, so any control character left would come from stored text.
    assert not any((letter < " " and letter != "\n") or "\x7f" <= letter < "\xa0" for letter in plain)


def test_an_approval_shows_all_arguments_on_a_narrow_terminal() -> None:
    harmless, hidden = "echo " + "x" * 400, "; rm -rf ~"
    drawn, log = drawn_for(ToolCalled(ToolCall("c1", "shell", {"command": harmless + hidden}, approval=True), "k"))
    columns = 40
    seen = "".join(TerminalStyle(io.StringIO()).blocks(drawn, columns).split())

    assert "".join((harmless + hidden).split()) in seen
    assert "shell needs approval: /approve or /deny" in TerminalStyle(io.StringIO()).blocks(log.tail, columns)


def test_the_duration_of_a_tool_does_not_include_the_wait_for_an_approval() -> None:
    asking = ToolCall("c1", "mail", approval=True)
    allowed, refused = (
        drawn_for(ToolCalled(asking, "k"), SessionRenamed("Tea", "agent"), ApprovalDecided("c1", approved), returned)[
            0
        ][-1]
        for approved in (True, False)
        for returned in [ToolReturned(ToolResult("c1", "ok"))]
    )

    assert isinstance(allowed, ToolBlock)
    assert allowed.ms == 1_000
    assert isinstance(refused, ToolBlock)
    assert refused.ms is None
