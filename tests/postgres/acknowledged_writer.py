"""A writer that remembers exactly which writes the store acknowledged."""

import random
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from backstay import Store, Text
from backstay.errors import CommitUnknown, StoreUnavailable
from backstay.model import message as m
from backstay.model.event import START, TurnEnded
from backstay.model.turn import Completed
from tests.touching import touch

P = ParamSpec("P")
T = TypeVar("T")

ME = "me"
# How long a write is retried; a working server needs a hundredth of it.
PATIENCE = 120.0


def retry_while_leased(verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Retry while the store is unavailable: the error guarantees that nothing has changed."""
    return _repeat(lambda error: isinstance(error, CommitUnknown), verb, *args, **kwargs)


def request(verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Retry after any store error: the request has an id and is executed once."""
    return _repeat(lambda _: False, verb, *args, **kwargs)


def _repeat(hopeless: Callable[[StoreUnavailable], bool], verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return verb(*args, **kwargs)
        except StoreUnavailable as error:
            if hopeless(error) or time.monotonic() > end:
                raise


class AcknowledgedWriter:
    """Has two sessions of its own: one for messages, and one whose marks of activity are counted."""

    def __init__(self, store: Store, dice: random.Random) -> None:
        self._store, self._dice = store, dice
        self.talk = retry_while_leased(store.create, owner=ME).id
        counted = retry_while_leased(store.create, owner=ME)
        self.counted, self.marks = counted.id, counted.activity
        self.said: list[tuple[str, str]] = []
        self.turns = 0

    def act(self) -> None:
        """Run one random verb until it is acknowledged."""
        self._dice.choice([self._turn, self._record, self._touch])()

    def _touch(self) -> None:
        retry_while_leased(touch, self._store, self.counted, owner=ME)
        self.marks += 1

    def _record(self) -> None:
        self.turns += 1
        told = [("user", f"note {self.turns}"), ("assistant", f"noted {self.turns}")]
        messages = [m.user(told[0][1]), m.assistant(told[1][1])]
        retry_while_leased(self._store.record, self.talk, messages, owner=ME)
        self.said += told

    def _turn(self) -> None:
        self.turns += 1
        question, request = f"question {self.turns}", f"{self.talk} {self.turns}"
        accepted = retry_while_leased(self._store.submit, self.talk, question, owner=ME, request_id=request, start=True)
        proof = accepted.opened
        assert proof is not None, "a verb that was refused is written all the same"
        self.said.append(("user", question))
        for word in ("well ", f"{self.turns}"):
            proof = retry_while_leased(self._store.checkpoint, proof, [Text(word)]).open
        retry_while_leased(self._store.finish, proof, Completed())
        self.said.append(("assistant", f"well {self.turns}"))


def check(store: Store, speakers: list[AcknowledgedWriter]) -> None:
    """Check that exactly the acknowledged writes are stored, once and in order."""
    listed = store.list(owner=ME, limit=1000).sessions
    known = [session for speaker in speakers for session in (speaker.talk, speaker.counted)]
    assert sorted(session.id for session in listed) == sorted(known)
    for speaker in speakers:
        messages = store.messages(speaker.talk, owner=ME).messages
        assert [(message.role, message.text) for message in messages] == speaker.said
        assert not [message for message in messages if message.partial]
        assert store.session(speaker.counted, owner=ME).activity == speaker.marks
        _check_story(store, speaker)


def _check_story(store: Store, speaker: AcknowledgedWriter) -> None:
    """Events are numbered without a gap, and each turn ends once."""
    numbers, ended, page = [], [], store.events_after(speaker.talk, START, owner=ME)
    while page.events:
        numbers += [event.number for event in page.events]
        ended += [event.turn for event in page.events if isinstance(event.body, TurnEnded)]
        page = store.events_after(speaker.talk, page.next, owner=ME)
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(ended) == len(set(ended))
    assert store.session(speaker.talk, owner=ME).turns == speaker.turns
