"""The measured turns, always of the same size, with text from the corpus."""

from collections.abc import Callable
from itertools import islice

from backstay import Store, Text, ToolCall, ToolResult
from backstay.model import message
from backstay.model.ids import SessionId
from backstay.model.turn import Completed, OpenTurn
from benchmarks.instruments.corpus import conversations

OWNER = "local"
QUESTION_BYTES, ANSWER_BYTES = 500, 1_500
Turn = Callable[[Store, SessionId], object]


def _words(size: int) -> str:
    said = "".join(exchange.question for exchange in next(iter(conversations(1))))
    return "".join(islice((letter for letter in said if letter.isascii()), size))


QUESTION, ANSWER = _words(QUESTION_BYTES), _words(ANSWER_BYTES)
MESSAGES = [message.user(QUESTION), message.assistant(ANSWER)]
DELTAS = [ANSWER[at : at + ANSWER_BYTES // 3] for at in range(0, ANSWER_BYTES, ANSWER_BYTES // 3)]


def recorded(store: Store, session: SessionId) -> None:
    """One recorded turn."""
    store.record(session, MESSAGES, owner=OWNER)


def streamed(store: Store, session: SessionId) -> None:
    """One streamed turn: accepted and started, three deltas, finished."""
    turn = start(store, session)
    for delta in DELTAS:
        turn = store.checkpoint(turn, [Text(delta)]).open
    store.finish(turn, Completed())


def streamed_with_tool(store: Store, session: SessionId) -> None:
    """The same with one tool call in it, whose intent and result are synced separately."""
    turn = start(store, session)
    turn = store.checkpoint(turn, [Text(DELTAS[0])]).open
    turn = store.checkpoint(turn, [ToolCall("call-1", "look_up", {"word": "harbour"})]).open
    turn = store.checkpoint(turn, [ToolResult("call-1", "a place where ships lie")]).open
    for delta in DELTAS[1:]:
        turn = store.checkpoint(turn, [Text(delta)]).open
    store.finish(turn, Completed())


def start(store: Store, session: SessionId) -> OpenTurn:
    """Submit the question; the proof of the turn that starts with it."""
    opened = store.submit(session, QUESTION, owner=OWNER, start=True).opened
    if opened is None:
        raise RuntimeError(f"{session} is busy in a benchmark that is its only user")
    return opened


def run_turns(store: Store, session: SessionId, turns: int, turn: Turn = recorded) -> None:
    """Many turns, one after the other."""
    for _ in range(turns):
        turn(store, session)
