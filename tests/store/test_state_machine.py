"""Any verbs in any order, by several holders that come and go: the store tells the same story as plain lists do.

`BACKSTAY_HYPOTHESIS=deep` looks for longer.
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from backstay import Address, Store, Text, ToolCall, ToolResult, Ttl, Usage, open_store
from backstay.errors import BackstayError, LeaseLost, NotFound
from backstay.model import message
from backstay.model.content import Body
from backstay.model.event import START, Cursor, SessionDeleted
from backstay.model.ids import MessageId, SessionId, TurnId, WindowId
from backstay.model.message import Message, NewMessage
from backstay.model.session import Session
from backstay.model.turn import OUTCOMES, Accepted, IfBusy, OpenTurn
from backstay.testing import ManualClock
from tests.store.plain_store import Outcome, PlainSession, PlainStore, PlainTurn, PlainWindow, Said, Step, reach

P = TypeVar("P")
R = TypeVar("R")

LEASE = 30.0
HANDLES = 3
OWNERS = ("ada", "bob")
ADDRESSES = {name: Address.chat("matrix", "group", chat=name) for name in ("kitchen", "porch")}
AGENTS = ("poet", "critic")
MOST_SESSIONS = 7
# So many steps apart all windows and whole stories are read again.
LOOK_BACK = 8

picks = st.integers(0, 30)
handles = st.integers(0, HANDLES - 1)
owners = st.sampled_from(OWNERS)
addresses = st.sampled_from(sorted(ADDRESSES))
agents = st.sampled_from(AGENTS)
maybe_agents = st.sampled_from([None, *AGENTS])
served = st.sampled_from([(), ("poet",), ("critic",), AGENTS])
if_busy: st.SearchStrategy[IfBusy] = st.sampled_from(["enqueue", "enqueue", "reject", "steer", "replace", "fork"])
shapes = st.sampled_from([("user",), ("user", "assistant"), ("assistant",), ("user", "call", "tool", "assistant")])
requests = st.sampled_from([None, None, "r1", "r2"])
bodies = st.lists(st.sampled_from(["text", "text", "text", "usage", "call", "return"]), max_size=4)
outcomes: st.SearchStrategy[Outcome] = st.sampled_from(["completed", "completed", "cancelled", "failed", "interrupted"])
# What happened since the last verb, noticed by nobody yet.
meanwhile = st.sampled_from(["nothing", "nothing", "nothing", "nothing", "the lease lapses", "a holder dies"])
ttls = st.sampled_from([None, None, Ttl(idle=50), Ttl(absolute=200), Ttl(idle=100, absolute=150)])


class Seen:
    """What the last look at a session showed, to be compared with the next."""

    def __init__(self) -> None:
        self.revision = self.context = 0
        self.visible: tuple[object, ...] = ()
        self.read: tuple[WindowId, list[MessageId]] | None = None
        self.cursor: Cursor = START


class Sessions(RuleBasedStateMachine):
    """Every rule does one verb to the store and to the plain one; then everything that can be seen is compared."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "store.db"
        self.clock = ManualClock()
        self.plain = PlainStore(self.clock, LEASE)
        self.stores: list[Store] = [self.open() for _ in range(HANDLES)]
        self.proofs: dict[PlainTurn, OpenTurn] = {}
        self.stale: list[OpenTurn] = []
        self.sent: list[tuple[PlainSession | str, str, str, list[str]]] = []
        self.seen: dict[PlainSession, Seen] = {}
        self.ended: set[PlainTurn] = set()
        self.words = self.calls = self.looks = 0

    def open(self) -> Store:
        return open_store(self.path, clock=self.clock, lease_seconds=LEASE)

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        self.folder.cleanup()

    # --- telling both -----------------------------------------------------------------------------------------------

    def both(self, plain: Callable[[], P], real: Callable[[], R]) -> tuple[P, R] | None:
        """The answers of both stores; None if both refused, in the same words."""
        try:
            expected = plain()
        except BackstayError as error:
            refusal = error
        else:
            return expected, real()
        with pytest.raises(type(refusal)) as refused:
            real()
        assert refused.type is type(refusal)
        return None

    def since(self, happened: str, pick: int) -> None:
        """Let something happen that nobody has noticed yet."""
        if happened == "the lease lapses":
            self.clock.advance(LEASE + 1)
        elif happened == "a holder dies":
            at = pick % HANDLES
            self.plain.dead.add(self.stores[at].worker)
            self.stores[at].close()
            self.stores[at] = self.open()

    def word(self) -> str:
        self.words += 1
        return f"w{self.words}"

    def session(self, pick: int) -> PlainSession:
        return self.plain.sessions[pick % len(self.plain.sessions)]

    def turn(self, pick: int) -> PlainTurn | None:
        turns = [turn for session in self.plain.sessions for turn in session.accepted[-4:]]
        return turns[pick % len(turns)] if turns else None

    def speaker(self, pick: int) -> PlainTurn:
        """A running turn; there must be one."""
        turns = [session.running for session in self.plain.sessions if session.running is not None]
        return turns[pick % len(turns)]

    def store_of(self, turn: PlainTurn) -> Store:
        """The handle that holds the turn, or another one if that is dead."""
        alive = [store for store in self.stores if store.worker == turn.holder]
        return (alive or self.stores)[0]

    def opened(self, turn: PlainTurn | None, proof: OpenTurn | None) -> None:
        """Both agree on which turn has started; its proof is kept."""
        assert (turn is None) == (proof is None), f"{turn} should be open, and the store opened {proof}"
        if turn is not None and proof is not None:
            self.bind(turn, proof.id)
            assert proof.input.text.split() == turn.words
            self.renewed(turn, proof)

    def renewed(self, turn: PlainTurn, proof: OpenTurn) -> None:
        self.proofs[turn] = proof

    def bind(self, turn: PlainTurn, id: TurnId) -> None:
        assert turn.id in (None, id)
        turn.id = id

    def bind_session(self, session: PlainSession, id: SessionId) -> None:
        assert session.id in (None, id)
        session.id = id

    def bind_windows(self, session: PlainSession) -> None:
        if any(window.id is None for window in session.windows):
            lineage = self.stores[0].lineage(_id(session), owner=session.owner)
            for plain, real in zip(session.windows, lineage, strict=True):
                assert plain.id in (None, real.id)
                plain.id = real.id
        for window in session.windows:
            if any(said.id is None for said in window.messages):
                self.compare_window(session, window)

    def accepted(self, turn: PlainTurn, answer: Accepted) -> None:
        self.bind(turn, answer.turn.id)
        self.bind_session(turn.session, answer.session.id)

    def said(self, kinds: Sequence[str], turn: PlainTurn) -> tuple[list[Step], list[Body]]:
        """What an agent says, as the plain store and as the real one take it."""
        steps: list[Step] = []
        spoken: list[Body] = []
        open_calls = [word for kind, word in turn.story if kind == "call"]
        for _, word in [step for step in turn.story if step[0] == "return"]:
            open_calls.remove(word)
        for kind in kinds:
            if kind == "text":
                steps.append(("text", self.word()))
                spoken.append(Text(f"{steps[-1][1]} "))
            elif kind == "call":
                self.calls += 1
                steps.append(("call", f"c{self.calls}"))
                open_calls.append(f"c{self.calls}")
                spoken.append(ToolCall(f"c{self.calls}", "look"))
            elif kind == "return" and open_calls:
                steps.append(("return", open_calls.pop(0)))
                spoken.append(ToolResult(steps[-1][1], "found"))
            elif kind == "usage":
                spoken.append(Usage(output_tokens=1))
        return steps, spoken

    # --- sessions ---------------------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.resolve(handle=0, owner="ada", address="kitchen", ttl=None, happened="nothing", pick=0)

    @rule(handle=handles, owner=owners, address=addresses, ttl=ttls, happened=meanwhile, pick=picks)
    def resolve(self, *, handle: int, owner: str, address: str, ttl: Ttl | None, happened: str, pick: int) -> None:
        self.since(happened, pick)
        idle, absolute = (None, None) if ttl is None else (_ms(ttl.idle), _ms(ttl.absolute))
        answers = self.both(
            lambda: self.plain.resolve(address, owner, idle, absolute),
            lambda: self.stores[handle].resolve(ADDRESSES[address], owner=owner, ttl=ttl),
        )
        assert answers is not None
        (session, how, generation), resolved = answers
        self.bind_session(session, resolved.session.id)
        assert (resolved.how, resolved.generation) == (how, generation)

    @rule(handle=handles, pick=picks, address=addresses)
    @precondition(lambda self: self.plain.sessions)
    def point(self, handle: int, pick: int, address: str) -> None:
        session = self.session(pick)
        self.both(
            lambda: self.plain.point(address, session),
            lambda: self.stores[handle].point(ADDRESSES[address], _id(session), owner=session.owner),
        )

    @rule(handle=handles, pick=picks)
    @precondition(lambda self: self.plain.sessions)
    def touch(self, handle: int, pick: int) -> None:
        session = self.session(pick)
        self.both(
            lambda: self.plain.touch(session),
            lambda: self.stores[handle].touch(_id(session), owner=session.owner),
        )

    @rule(handle=handles, pick=picks, title=st.sampled_from([None, "Soup", "Bread"]), by_agent=st.booleans())
    @precondition(lambda self: self.plain.sessions)
    def rename(self, handle: int, pick: int, title: str | None, by_agent: bool) -> None:
        session = self.session(pick)
        by: Literal["person", "agent"] = "agent" if by_agent else "person"
        self.both(
            lambda: self.plain.rename(session, title, by),
            lambda: self.stores[handle].rename(_id(session), title, owner=session.owner, by=by),
        )

    @rule(handle=handles, pick=picks, pinned=st.booleans(), happened=meanwhile)
    @precondition(lambda self: self.plain.sessions)
    def pin(self, handle: int, pick: int, pinned: bool, happened: str) -> None:
        self.since(happened, pick)
        session = self.session(pick)
        self.both(
            lambda: self.plain.pin(session, pinned),
            lambda: self.stores[handle].pin(_id(session), pinned, owner=session.owner),
        )

    @rule(handle=handles, pick=picks, happened=meanwhile)
    @precondition(lambda self: self.plain.sessions)
    def end(self, handle: int, pick: int, happened: str) -> None:
        self.since(happened, pick)
        session = self.session(pick)
        self.both(lambda: self.plain.end(session), lambda: self.stores[handle].end(_id(session), owner=session.owner))

    @rule(handle=handles, pick=picks)
    @precondition(lambda self: len(self.plain.sessions) > 1)
    def delete(self, handle: int, pick: int) -> None:
        session = self.session(pick)
        answers = self.both(
            lambda: self.plain.delete(session),
            lambda: self.stores[handle].delete(_id(session), owner=session.owner),
        )
        assert answers is not None
        removed, deleted = answers
        assert (deleted.messages, deleted.turns, deleted.kept_messages) == removed
        followed = self.stores[handle].events_after(_id(session), self.seen[session].cursor, owner=session.owner)
        assert [event.body for event in followed.events] == [SessionDeleted()]

    # --- turns ------------------------------------------------------------------------------------------------------

    @rule(
        handle=handles,
        owner=owners,
        pick=picks,
        by_address=st.sampled_from([False, False, True]),
        address=addresses,
        agent=agents,
        if_busy=if_busy,
        start=st.booleans(),
        request=requests,
        happened=meanwhile,
    )
    @precondition(lambda self: 0 < len(self.plain.sessions) < MOST_SESSIONS)
    def submit(
        self,
        *,
        handle: int,
        owner: str,
        pick: int,
        by_address: bool,
        address: str,
        agent: str,
        if_busy: IfBusy,
        start: bool,
        request: str | None,
        happened: str,
    ) -> None:
        self.since(happened, pick)
        to: PlainSession | str = address if by_address else self.session(pick)
        owner = owner if isinstance(to, str) else to.owner
        words = [self.word()]
        if request is not None:
            self.sent.append((to, owner, request, words))
        self.send(handle, to, words, owner=owner, agent=agent, if_busy=if_busy, start=start, request=request)

    @rule(handle=handles, pick=picks, agent=agents, if_busy=if_busy, start=st.booleans())
    @precondition(lambda self: self.sent)
    def deliver_again(self, handle: int, pick: int, agent: str, if_busy: IfBusy, start: bool) -> None:
        to, owner, request, words = self.sent[pick % len(self.sent)]
        self.send(handle, to, words, owner=owner, agent=agent, if_busy=if_busy, start=start, request=request)

    def send(
        self,
        handle: int,
        to: PlainSession | str,
        words: list[str],
        *,
        owner: str,
        agent: str,
        if_busy: IfBusy,
        start: bool,
        request: str | None,
    ) -> None:
        store = self.stores[handle]
        known = (owner, to, request) in self.plain.requests
        answers = self.both(
            lambda: self.plain.submit(
                to,
                words,
                owner=owner,
                agent=agent,
                if_busy=if_busy,
                holder=store.worker if start else None,
                request=request,
            ),
            lambda: store.submit(
                ADDRESSES[to] if isinstance(to, str) else _id(to),
                " ".join(words),
                owner=owner,
                agent=agent,
                if_busy=if_busy,
                start=start,
                request_id=request,
            ),
        )
        if answers is not None:
            (turn, opened), answer = answers
            assert answer.repeated == known
            self.accepted(turn, answer)
            self.opened(opened, answer.opened)

    @rule(
        handle=handles,
        pick=picks,
        shape=shapes,
        reject=st.booleans(),
        expect=st.sampled_from([None, None, 0, -1]),
        happened=meanwhile,
    )
    @precondition(lambda self: self.plain.sessions)
    def record(
        self, *, handle: int, pick: int, shape: tuple[str, ...], reject: bool, expect: int | None, happened: str
    ) -> None:
        self.since(happened, pick)
        session = self.session(pick)
        plain, real = self.finished(shape)
        expected = None if expect is None else session.revision + expect
        busy: IfBusy = "reject" if reject else "enqueue"
        answers = self.both(
            lambda: self.plain.record(session, plain, owner=session.owner, if_busy=busy, expect_revision=expected),
            lambda: self.stores[handle].record(
                _id(session), real, owner=session.owner, if_busy=busy, expect_revision=expected
            ),
        )
        if answers is not None:
            self.bind(answers[0], answers[1].turn.id)

    def finished(self, shape: tuple[str, ...]) -> tuple[list[tuple[str, list[str]]], list[NewMessage]]:
        """Finished messages, as the plain store and as the real one take them."""
        plain: list[tuple[str, list[str]]] = []
        real: list[NewMessage] = []
        for kind in shape:
            words = [] if kind == "tool" else [self.word()]
            plain.append(("assistant" if kind == "call" else kind, words))
            if kind == "call":
                real.append(message.assistant([Text(words[0]), ToolCall("c", "look")]))
            elif kind == "tool":
                real.append(message.tool(ToolResult("c", "found")))
            else:
                real.append((message.user if kind == "user" else message.assistant)(words[0]))
        return plain, real

    @rule(handle=handles, pick=picks, agents=served, happened=meanwhile)
    @precondition(lambda self: self.plain.sessions)
    def claim_in(self, handle: int, pick: int, agents: Sequence[str], happened: str) -> None:
        self.since(happened, pick)
        session, store = self.session(pick), self.stores[handle]
        turn = self.plain.claim(agents, session, store.worker)
        self.opened(turn, store.claim(agents, session=_id(session), owner=session.owner))

    @rule(handle=handles, pick=picks, agents=served, happened=meanwhile)
    def claim_anywhere(self, handle: int, pick: int, agents: Sequence[str], happened: str) -> None:
        self.since(happened, pick)
        oldest, store = {session.id: session for session in self.plain.claimable(agents)}, self.stores[handle]
        proof = store.claim(agents)
        assert (proof is None) == (not oldest)
        if proof is not None:
            self.opened(self.plain.claim(agents, oldest[proof.session], store.worker), proof)

    @rule(pick=picks, kinds=bodies, take=st.booleans(), late=st.sampled_from([False, False, False, True]))
    @precondition(lambda self: self.somebody_speaks())
    def checkpoint(self, pick: int, kinds: list[str], take: bool, late: bool) -> None:
        self.since("the lease lapses" if late else "nothing", pick)
        turn = self.speaker(pick)
        steps, spoken = self.said(kinds, turn)
        answers = self.both(
            lambda: self.plain.checkpoint(turn, steps, take),
            lambda: self.store_of(turn).checkpoint(self.proofs[turn], spoken, take_steering=take),
        )
        assert answers is not None
        taken, answer = answers
        assert [one.turn for one in answer.steering] == [one.id for one in taken]
        assert answer.mail.waiting == len(turn.session.queue)
        assert answer.mail.steering == len([one for one in turn.session.queue if one.steer])
        assert answer.mail.cancel == turn.cancelling
        self.renewed(turn, answer.open)

    @rule(pick=picks)
    @precondition(lambda self: self.somebody_speaks())
    def renew(self, pick: int) -> None:
        turn = self.speaker(pick)
        self.plain.renew(turn)
        self.renewed(turn, self.store_of(turn).renew(self.proofs[turn]).open)

    @rule(pick=picks, outcome=outcomes, kinds=bodies, agents=served)
    @precondition(lambda self: self.somebody_speaks())
    def finish(self, pick: int, outcome: Outcome, kinds: list[str], agents: Sequence[str]) -> None:
        turn = self.speaker(pick)
        steps, spoken = self.said(kinds, turn)
        answers = self.both(
            lambda: self.plain.finish(turn, outcome, steps, agents),
            lambda: self.store_of(turn).finish(self.proofs[turn], OUTCOMES[outcome](), bodies=spoken, agents=agents),
        )
        assert answers is not None
        self.opened(answers[0], answers[1].opened)

    @rule(handle=handles, pick=picks, take=st.booleans(), happened=meanwhile)
    @precondition(lambda self: self.turn(0))
    def cancel(self, handle: int, pick: int, take: bool, happened: str) -> None:
        self.since(happened, pick)
        turn = self.turn(pick)
        assert turn is not None
        self.both(
            lambda: self.plain.cancel(turn, take),
            lambda: self.stores[handle].cancel(_turn_id(turn), owner=turn.session.owner, take=take),
        )

    @rule(handle=handles, pick=picks, edit=st.booleans())
    @precondition(lambda self: self.turn(0))
    def change_what_waits(self, handle: int, pick: int, edit: bool) -> None:
        turn = self.turn(pick)
        assert turn is not None
        owner, words = turn.session.owner, [self.word()]
        if edit:
            self.both(
                lambda: self.plain.edit_waiting(turn, words),
                lambda: self.stores[handle].edit_waiting(_turn_id(turn), words[0], owner=owner),
            )
        else:
            self.both(
                lambda: self.plain.withdraw(turn),
                lambda: self.stores[handle].withdraw(_turn_id(turn), owner=owner),
            )

    @rule(handle=handles, pick=picks, verb=st.sampled_from(["checkpoint", "renew", "finish", "rotate"]))
    @precondition(lambda self: self.stale)
    def write_with_a_stale_proof(self, handle: int, pick: int, verb: str) -> None:
        store, proof = self.stores[handle], self.stale[pick % len(self.stale)]
        late = [message.summary("too late")]
        verbs: dict[str, Callable[[], object]] = {
            "checkpoint": lambda: store.checkpoint(proof, [Text("too late")]),
            "renew": lambda: store.renew(proof),
            "finish": lambda: store.finish(proof, OUTCOMES["completed"]()),
            "rotate": lambda: store.rotate(
                proof.session, late, owner=proof.owner, parent=proof.window, keep_from=1, turn=proof
            ),
        }
        with pytest.raises(LeaseLost):
            verbs[verb]()

    # --- history ----------------------------------------------------------------------------------------------------

    @rule(handle=handles, pick=picks, expect=st.sampled_from([None, None, 0, -1]), happened=meanwhile)
    @precondition(lambda self: self.plain.sessions)
    def undo(self, handle: int, pick: int, expect: int | None, happened: str) -> None:
        self.since(happened, pick)
        session = self.session(pick)
        expected = None if expect is None else session.revision + expect
        self.both(
            lambda: self.plain.undo(session, expected),
            lambda: self.stores[handle].undo(_id(session), owner=session.owner, expect_revision=expected),
        )

    @rule(handle=handles, pick=picks)
    @precondition(lambda self: self.plain.sessions)
    def undo_again_and_again(self, handle: int, pick: int) -> None:
        session = self.session(pick)
        for _ in range(3):
            self.both(
                lambda: self.plain.undo(session, None),
                lambda: self.stores[handle].undo(_id(session), owner=session.owner),
            )

    @rule(handle=handles, pick=picks, expect=st.sampled_from([None, None, 0, -1]))
    @precondition(lambda self: self.plain.sessions)
    def redo(self, handle: int, pick: int, expect: int | None) -> None:
        session = self.session(pick)
        expected = None if expect is None else session.revision + expect
        self.both(
            lambda: self.plain.redo(session, expected),
            lambda: self.stores[handle].redo(_id(session), owner=session.owner, expect_revision=expected),
        )

    @rule(handle=handles, pick=picks, agent=maybe_agents, start=st.booleans(), happened=meanwhile)
    @precondition(lambda self: self.plain.sessions)
    def retry(self, handle: int, pick: int, agent: str | None, start: bool, happened: str) -> None:
        self.since(happened, pick)
        session, store = self.session(pick), self.stores[handle]
        answers = self.both(
            lambda: self.plain.retry(session, agent, store.worker if start else None),
            lambda: store.retry(_id(session), owner=session.owner, agent=agent, start=start),
        )
        if answers is not None:
            (turn, opened), answer = answers
            self.accepted(turn, answer)
            self.opened(opened, answer.opened)

    @rule(handle=handles, pick=picks, which=picks, agent=maybe_agents, start=st.booleans())
    @precondition(lambda self: self.plain.sessions and self.plain.existing)
    def edit(self, handle: int, pick: int, which: int, agent: str | None, start: bool) -> None:
        session, store, said, words = self.session(pick), self.stores[handle], self.message(pick, which), [self.word()]
        answers = self.both(
            lambda: self.plain.edit(session, said, words, agent, store.worker if start else None),
            lambda: store.edit(
                _id(session), _message_id(said), words[0], owner=session.owner, agent=agent, start=start
            ),
        )
        if answers is not None:
            (turn, opened), answer = answers
            self.accepted(turn, answer)
            self.opened(opened, answer.opened)

    def message(self, pick: int, which: int) -> Said:
        """A message that the session can reach, mostly; or any that exists."""
        within = reach(self.session(pick).window) if which % 5 else []
        among = within or self.plain.existing
        return among[which % len(among)]

    @rule(handle=handles, pick=picks, which=st.none() | picks, happened=meanwhile)
    @precondition(lambda self: 0 < len(self.plain.sessions) < MOST_SESSIONS and self.plain.existing)
    def fork(self, handle: int, pick: int, which: int | None, happened: str) -> None:
        self.since(happened, pick)
        session = self.session(pick)
        at = None if which is None else self.message(pick, which)
        answers = self.both(
            lambda: self.plain.fork(session, at),
            lambda: self.stores[handle].fork(
                _id(session), owner=session.owner, at=None if at is None else _message_id(at)
            ),
        )
        if answers is not None:
            self.bind_session(answers[0], answers[1].id)

    @rule(handle=handles, pick=picks, keep=st.integers(-1, 6), old=st.sampled_from([0, 0, 0, 1, 2]), happened=meanwhile)
    @precondition(lambda self: self.plain.sessions)
    def rotate(self, handle: int, pick: int, keep: int, old: int, happened: str) -> None:
        self.since(happened, pick)
        session = self.session(pick)
        parent = session.window if old == 0 else session.windows[-min(old, len(session.windows))]
        summary = [self.word()]
        answers = self.both(
            lambda: self.plain.rotate(session, parent, keep, summary, None),
            lambda: self.stores[handle].rotate(
                _id(session),
                [message.summary(summary[0])],
                owner=session.owner,
                parent=_window_id(parent),
                keep_from=keep,
            ),
        )
        if answers is not None:
            assert answers[0] == answers[1].won

    @rule(pick=picks, keep=st.integers(0, 6))
    @precondition(lambda self: self.somebody_speaks())
    def rotate_within_a_turn(self, pick: int, keep: int) -> None:
        turn = self.speaker(pick)
        session, summary, proof = turn.session, [self.word()], self.proofs[turn]
        answers = self.both(
            lambda: self.plain.rotate(session, session.window, keep, summary, turn),
            lambda: self.store_of(turn).rotate(
                _id(session),
                [message.summary(summary[0])],
                owner=session.owner,
                parent=proof.window,
                keep_from=keep,
                turn=proof,
            ),
        )
        if answers is not None:
            won, rotated = answers
            assert (won, rotated.open is not None) == (rotated.won, True)
            self.renewed(turn, rotated.open or proof)

    # --- maintenance and time ---------------------------------------------------------------------------------------

    @rule(handle=handles, happened=meanwhile, pick=picks)
    def reap(self, handle: int, happened: str, pick: int) -> None:
        self.since(happened, pick)
        reaped = self.plain.reap()
        assert set(self.stores[handle].reap()) == {turn.id for turn in reaped}

    @rule(handle=handles, keep=st.sampled_from([None, None, None, 100.0]), happened=meanwhile, pick=picks)
    def collect(self, handle: int, keep: float | None, happened: str, pick: int) -> None:
        self.since(happened, pick)
        expired, deleted, messages = self.plain.collect(keep)
        found = self.stores[handle].collect(keep_closed_for=keep)
        assert (found.expired, found.deleted, found.messages) == (expired, deleted, messages)

    @rule(handle=handles, older_than=st.sampled_from([0.0, 60.0]))
    def fold(self, handle: int, older_than: float) -> None:
        self.stores[handle].fold(older_than=older_than)
        assert self.stores[handle].fold(older_than=older_than) == 0
        self.every_story_is_complete()

    @rule(handle=handles)
    def index(self, handle: int) -> None:
        self.stores[handle].index()
        assert self.stores[handle].index() == 0

    @rule(seconds=st.sampled_from([1.0, 20.0, 45.0, 120.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(pick=picks)
    def a_holder_dies(self, pick: int) -> None:
        self.since("a holder dies", pick)

    def every_window_reads_what_it_always_read(self) -> None:
        for session in self.plain.sessions:
            lineage = self.stores[0].lineage(_id(session), owner=session.owner)
            assert [window.id for window in lineage] == [window.id for window in session.windows]
            assert [window.reason for window in lineage] == [window.reason for window in session.windows]
            for window in session.windows:
                self.compare_window(session, window)

    def every_story_is_complete(self) -> None:
        for session in self.plain.sessions:
            page = self.stores[0].events_after(_id(session), owner=session.owner, limit=1000)
            numbers = [number for event in page.events for number in range(event.number, event.last + 1)]
            assert numbers == list(range(1, len(numbers) + 1))
            assert len(numbers) == self.stores[0].session(_id(session), owner=session.owner).last_event

    def somebody_speaks(self) -> bool:
        return any(session.running is not None for session in self.plain.sessions)

    # --- what is always true ----------------------------------------------------------------------------------------

    @invariant()
    def both_show_the_same(self) -> None:
        """Whoever looks ends what is dead; then every session is what the plain store says, and grew as it must."""
        self.plain.reap()
        for session in self.plain.sessions:
            self.compare(session)
        for session in [gone for gone in self.seen if gone.state == "deleted"]:
            self.forget(session)
        self.compare_lists()
        self.compare_turns()
        self.compare_search()
        self.looks += 1
        if self.looks % LOOK_BACK == 0:
            self.every_window_reads_what_it_always_read()
            self.every_story_is_complete()

    def compare(self, session: PlainSession) -> None:
        store = self.stores[len(self.seen) % HANDLES]
        real = store.session(_id(session), owner=session.owner)
        read = store.messages(_id(session), owner=session.owner).messages
        self.compare_session(session, real)
        self.compare_messages(read, session.messages)
        seen = self.seen.setdefault(session, Seen())
        self.compare_growth(seen, session, real, [said.id for said in read])
        self.follow(seen, session, real)
        session.revision = real.revision

    def compare_session(self, session: PlainSession, real: Session) -> None:
        self.bind_windows(session)
        assert real.window == session.window.id
        assert real.state == session.standing(self.clock.now())
        assert real.length == len(session.messages)
        assert real.waiting == len(session.queue)
        assert real.turns == session.turns
        assert real.running == (None if session.running is None else session.running.id)
        assert real.activity == session.activity
        assert (real.title, real.title_by, real.pinned) == (session.title, session.title_by, session.pinned)
        assert real.expires_at == session.expires_at()
        assert real.source == (None if session.source is None else session.source.id)
        reachable = [" ".join(said.words) for said in reach(session.window)]
        assert real.preview is None or real.preview in reachable

    def compare_window(self, session: PlainSession, window: PlainWindow) -> None:
        page = self.stores[0].messages(_id(session), owner=session.owner, window=_window_id(window))
        self.compare_messages(page.messages, window.messages)
        assert page.length == len(window.messages)

    def compare_messages(self, read: Sequence[Message], expected: Sequence[Said]) -> None:
        assert [(said.role, said.text.split(), said.partial) for said in read] == [
            (said.role, said.words, said.partial) for said in expected
        ]
        for real, plain in zip(read, expected, strict=True):
            plain.id = plain.id or real.id
        assert [said.id for said in read] == [said.id for said in expected]
        assert [said.position for said in read] == list(range(len(read)))

    def compare_growth(self, seen: Seen, session: PlainSession, real: Session, read: list[MessageId]) -> None:
        """The revision grows with what can be noticed, the context with what is read, and neither ever shrinks."""
        waiting = [(turn.id, *turn.words) for turn in session.queue]
        running = session.running
        visible = (
            *(real.title, real.pinned, real.turns, real.running, real.window, session.state),
            *(tuple(waiting), tuple(read), running is not None and running.cancelling),
        )
        reads = (real.window, read)
        assert real.revision >= seen.revision
        assert real.revision > seen.revision or visible == seen.visible
        assert seen.read is None or (real.context > seen.context) == (reads != seen.read)
        assert real.context >= seen.context
        seen.revision, seen.context, seen.visible, seen.read = real.revision, real.context, visible, reads

    def follow(self, seen: Seen, session: PlainSession, real: Session) -> None:
        """The story goes on exactly after what was seen, or says that this was folded."""
        page = self.stores[0].events_after(_id(session), seen.cursor, owner=session.owner)
        number = seen.cursor.number
        if page.gap == "snapshot":
            number = page.events[0].number - 1
        assert page.gap != "resync"
        for event in page.events:
            assert event.number == number + 1
            number = event.last
        assert number == real.last_event
        seen.cursor = page.next

    def forget(self, session: PlainSession) -> None:
        """A deleted session is nowhere to be found."""
        del self.seen[session]
        with pytest.raises(NotFound):
            self.stores[0].session(_id(session), owner=session.owner)

    def compare_lists(self) -> None:
        for owner in OWNERS:
            listed = self.stores[1].list(owner=owner).sessions
            assert {one.id for one in listed} == {one.id for one in self.plain.sessions if one.owner == owner}
            assert [(one.active_at, one.id) for one in listed] == sorted(
                [(one.active_at, one.id) for one in listed], reverse=True
            )

    def compare_turns(self) -> None:
        running = 0
        for session in self.plain.sessions:
            for turn in session.accepted:
                if turn not in self.ended:
                    self.compare_turn(turn)
            waiting = self.stores[2].waiting(_id(session), owner=session.owner)
            assert [turn.id for turn in waiting] == [turn.id for turn in session.queue]
            running += session.running is not None
        for turn in [turn for turn in self.proofs if turn.state == "ended" or turn.session.state == "deleted"]:
            self.stale = [*self.stale[-5:], self.proofs.pop(turn)]
        assert len(self.proofs) == running

    def compare_turn(self, turn: PlainTurn) -> None:
        real = self.stores[2].turn(_turn_id(turn), owner=turn.session.owner)
        outcome = None if real.outcome is None else real.outcome.__struct_config__.tag
        assert (real.state, outcome) == (turn.state, turn.outcome)
        assert real.taken_by == (None if turn.taken_by is None else turn.taken_by.id)
        assert real.agent == turn.agent
        if turn.state == "waiting" and turn.record is None:
            assert real.input is not None
            assert [part.text for part in real.input if isinstance(part, Text)] == turn.words
        if turn.state == "ended":
            self.ended.add(turn)

    def compare_search(self) -> None:
        """A search finds exactly what the owner's sessions can reach, each message once, where it can be read."""
        for owner in OWNERS:
            readers: dict[MessageId, set[SessionId]] = {}
            for session in [one for one in self.plain.sessions if one.owner == owner]:
                for said in reach(session.window):
                    if said.role in ("user", "assistant") and said.words:
                        readers.setdefault(_message_id(said), set()).add(_id(session))
            page = self.stores[0].search("w*", owner=owner, limit=1000)
            assert sorted(hit.message for hit in page.hits) == sorted(readers)
            assert all(hit.session in readers[hit.message] for hit in page.hits)
            assert page.lag == 0


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _id(session: PlainSession) -> SessionId:
    assert session.id is not None
    return session.id


def _turn_id(turn: PlainTurn) -> TurnId:
    assert turn.id is not None
    return turn.id


def _message_id(said: Said) -> MessageId:
    assert said.id is not None
    return said.id


def _window_id(window: PlainWindow) -> WindowId:
    assert window.id is not None
    return window.id


DEEP = os.environ.get("BACKSTAY_HYPOTHESIS") == "deep"

TestSessions = Sessions.TestCase
TestSessions.settings = settings(
    max_examples=2_000 if DEEP else 60,
    stateful_step_count=80 if DEEP else 40,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
