"""A live agent that answers with its memory and with the messages it should know, to compare the two."""

import json
from collections.abc import AsyncIterator

from backstay import Text
from backstay.agents.port import AgentTurn
from backstay.model.content import Body
from backstay.model.ids import MessageId, TurnId, WindowId
from backstay.model.message import Message
from backstay.runtime.session_handle import Session

# The messages that an agent has seen, by id. It never learns the ids of its own answers: for these, the turn.
Knowledge = list[str]


class Knowing:
    """Loads the history once; remembers its inputs and outputs, and answers with all of them."""

    def __init__(self) -> None:
        self.known: Knowledge = []
        self.closed = False

    async def load(self, messages: tuple[Message, ...]) -> None:
        self.known = [message.id for message in messages]

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        assert not self.closed
        answer = json.dumps(self.known)
        self.known += [turn.input.id, f"said in {turn.id}"]
        yield Text(answer)

    async def aclose(self) -> None:
        self.closed = True


class Learning(Knowing):
    """The same, and it can catch up with messages that others added."""

    def __init__(self) -> None:
        super().__init__()
        self.lessons = 0

    async def catch_up(self, messages: tuple[Message, ...]) -> None:
        self.lessons += 1
        self.known += [message.id for message in messages]


async def heard_and_known(
    session: Session, turn: TurnId, window: WindowId | None = None
) -> tuple[list[MessageId], list[MessageId]]:
    """The messages before the turn's input, and those that its agent knew according to its answer."""
    messages = await session.messages(window=window)
    asked, answer = (message for message in messages if message.turn == turn)
    before = messages[: asked.position]
    said = {f"said in {message.turn}": message.id for message in before if message.role == "assistant"}
    known = [said.get(entry, MessageId(entry)) for entry in json.loads(answer.text)]
    return [message.id for message in before], known
