"""A turn that runs on another host, and an app in the process of the test that follows it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import backstay
from backstay import App
from backstay.agents.adapters import AgentLike
from backstay.model.event import TextDelta
from backstay.runtime.session_handle import Session
from backstay.runtime.turn_handle import Turn
from tests.postgres.hosts.host_programs import CHAT, perform
from tests.runtime_processes.child_process import Child, OwnChild
from tests.runtime_processes.turn_in_child import seen


class TurnOnHost(NamedTuple):
    """A session whose turn `first` runs on the other host, and has said `one `; the app is another host's."""

    app: App
    session: Session
    turn: Turn
    other: OwnChild


@asynccontextmanager
async def host(url: str, lease_seconds: float, agent: AgentLike | None = None) -> AsyncIterator[App]:
    """A host of its own, without the in-process wake-up."""
    async with backstay.open(url, agent=agent, notify=False, lease_seconds=lease_seconds) as app:
        yield app


@asynccontextmanager
async def busy(here: str, there: str, lease_seconds: float) -> AsyncIterator[TurnOnHost]:
    """A running turn; the two hosts have their own ways to one database."""
    async with host(here, lease_seconds) as app:
        with OwnChild(perform, there, lease_seconds) as other:
            session = await app.session(CHAT)
            turn = await session.send("first", request_id="first", allow_unserved=True)
            await other.receive_async("speaking", "first")
            other.send_order("first", "say", "one ")
            await seen(turn, TextDelta)
            yield TurnOnHost(app, session, turn, other)


def still_works(other: Child, word: str) -> None:
    """The host answers the next message, and then exits cleanly; it logged only its lost turn."""
    other.send_order("app", "send", word)
    other.receive("speaking", word)
    other.send_order(word, "say", "awake")
    other.send_order(word, "end")
    other.receive(word, "did", "say")
    other.terminate()
    troubles = [str(words[1]) for words in other.everything() if words[0] == "trouble"]
    expected = ("turn could not be written", "turn could not be ended")
    assert [trouble for trouble in troubles if not trouble.startswith(expected)] == []
    assert other.exit_code() == 0
