"""A live agent that answers with what it knows, and what it must have known, to compare the two."""

import json
from collections.abc import AsyncIterator

from backstay import Text
from backstay.agents.port import AgentTurn
from backstay.model.content import Body
from backstay.model.ids import MessageId, TurnId, WindowId
from backstay.model.message import Message
from backstay.runtime.session_handle import Session

# What an agent has heard, by id; of its own answers, whose ids it never learns, in which turn it gave them.
Knowledge = list[str]


class Knowing:
    """Told the history when it is built, never again; remembers what it hears and says, and answers with all of it."""

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
    """The same, and it can be told what others added."""

    def __init__(self) -> None:
        super().__init__()
        self.lessons = 0

    async def catch_up(self, messages: tuple[Message, ...]) -> None:
        self.lessons += 1
        self.known += [message.id for message in messages]


async def heard_and_known(
    session: Session, turn: TurnId, window: WindowId | None = None
) -> tuple[list[MessageId], list[MessageId]]:
    """The messages that stood before the turn's input, and those that its agent knew, as its answer tells."""
    messages = await session.messages(window=window)
    asked, answer = (message for message in messages if message.turn == turn)
    before = messages[: asked.position]
    said = {f"said in {message.turn}": message.id for message in before if message.role == "assistant"}
    known = [said.get(entry, MessageId(entry)) for entry in json.loads(answer.text)]
    return [message.id for message in before], known
