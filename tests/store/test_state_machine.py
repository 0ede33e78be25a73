"""Any verbs in any order, by several holders that open and close: the store matches a model of plain lists.

`BACKSTAY_HYPOTHESIS=deep` searches longer.
"""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from backstay import Address, Store, Text, ToolCall, ToolResult, Ttl, Usage
from backstay.errors import LeaseLost
from backstay.model import message
from backstay.model.content import Body
from backstay.model.event import SessionDeleted
from backstay.model.message import NewMessage
from backstay.model.turn import OUTCOMES, IfBusy, OpenTurn
from tests.databases import Place, Places
from tests.effort import tries
from tests.store.compared_stores import AGENTS, HANDLES, LEASE, OWNERS, TwoStores, id_of, message_id, turn_id, window_id
from tests.store.plain_store import Finished, Outcome, PlainSession, PlainTurn, Said, Step, reach
from tests.touching import touch

ADDRESSES = {name: Address.chat("matrix", "group", chat=name) for name in ("kitchen", "porch")}
MOST_SESSIONS = 6

picks = st.integers(0, 59)
handles = st.integers(0, HANDLES - 1)
owners = st.sampled_from(OWNERS)
addresses = st.sampled_from(sorted(ADDRESSES))
agents = st.sampled_from(AGENTS)
maybe_agents = st.sampled_from([None, *AGENTS])
served = st.sampled_from([AGENTS, ("poet",), ("critic",), ()])
if_busy: st.SearchStrategy[IfBusy] = st.sampled_from(["enqueue", "enqueue", "reject", "steer", "replace", "fork"])
shapes = st.sampled_from([("user",), ("user", "assistant"), ("user", "call", "tool", "assistant"), ("assistant",)])
requests = st.sampled_from([None, None, None, *(f"r{number}" for number in range(6))])
bodies = st.lists(st.sampled_from(["text", "text", "text", "usage", "call", "return"]), max_size=4)
outcomes: st.SearchStrategy[Outcome] = st.sampled_from(["completed", "completed", "cancelled", "failed", "interrupted"])
expected = st.sampled_from([None, None, 0, -1])
ttls = st.sampled_from([None, None, None, Ttl(idle=200), Ttl(absolute=300), Ttl(idle=100, absolute=150)])
# Changes since the last step that no process has noticed yet.
meanwhile = st.sampled_from(["nothing"] * 8 + ["the lease lapses", "a holder dies"])


class Sessions(RuleBasedStateMachine):
    """Every rule runs one verb on both stores; then everything visible is compared."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.two = TwoStores(place)
        self.plain, self.stores, self.clock = self.two.plain, self.two.stores, self.two.clock
        self.sent: list[tuple[PlainSession | str, str, str, list[str]]] = []
        self.words = self.calls = 0

    def teardown(self) -> None:
        self.two.close()

    @invariant()
    def both_show_the_same(self) -> None:
        self.two.compare()

    # --- choosing ---------------------------------------------------------------------------------------------------

    def session(self, pick: int, likely: Callable[[PlainSession], bool] = bool) -> PlainSession:
        """A session; mostly one that the verb can act on, if there is one."""
        among = [session for session in self.plain.sessions if pick % 6 == 0 or likely(session)] or self.plain.sessions
        return among[pick % len(among)]

    def unforked(self, pick: int) -> PlainSession | None:
        """A session that was not forked from another; mostly one in which something waits."""
        unforked = [session for session in self.plain.sessions if session.source is None]
        among = [session for session in unforked if pick % 6 == 0 or session.queue] or unforked
        return among[pick % len(among)] if among else None

    def idle(self, session: PlainSession) -> bool:
        """Whether there is a message, and no turn runs or waits."""
        busy = session.running is not None or bool(session.queue)
        return bool(session.messages) and not busy and session.state_at(self.clock.now()) == "open"

    def open(self, session: PlainSession) -> bool:
        return session.state_at(self.clock.now()) == "open"

    def speaker(self, pick: int) -> PlainTurn:
        """A running turn; there must be one."""
        turns = [session.running for session in self.plain.sessions if session.running is not None]
        return turns[pick % len(turns)]

    def session_is_busy(self) -> bool:
        return any(session.running is not None for session in self.plain.sessions)

    def turn(self, pick: int) -> PlainTurn | None:
        """Mostly one that has not ended."""
        turns = [turn for session in self.plain.sessions for turn in session.accepted[-4:]]
        among = [turn for turn in turns if pick % 6 == 0 or turn.state != "ended"] or turns
        return among[pick % len(among)] if among else None

    def message(self, session: PlainSession, pick: int) -> Said:
        """A message that the session can reach, mostly; or any that exists."""
        among = (reach(session.window) if pick % 6 else []) or self.plain.existing
        return among[pick % len(among)]

    def since(self, happened: str, pick: int) -> None:
        if happened == "the lease lapses":
            self.clock.advance(LEASE + 1)
        elif happened == "a holder dies":
            self.two.kill(pick % HANDLES)

    # --- content ----------------------------------------------------------------------------------------------------

    def word(self) -> str:
        """A word that was never used before."""
        self.words += 1
        return f"w{self.words}"

    def answer(self, kinds: Sequence[str], turn: PlainTurn) -> tuple[list[Step], list[Body]]:
        """The output of an agent, in the form of the plain store and in that of the real one."""
        steps: list[Step] = []
        spoken: list[Body] = []
        returned = [word for kind, word in turn.steps_taken if kind == "return"]
        calls = [word for kind, word in turn.steps_taken if kind == "call" and word not in returned]
        for kind in kinds:
            if kind == "text":
                steps.append(("text", self.word()))
                spoken.append(Text(f"{steps[-1][1]} "))
            elif kind == "call":
                self.calls += 1
                calls.append(f"c{self.calls}")
                steps.append(("call", calls[-1]))
                spoken.append(ToolCall(calls[-1], "look"))
            elif kind == "return" and calls:
                steps.append(("return", calls.pop(0)))
                spoken.append(ToolResult(steps[-1][1], "found"))
            elif kind == "usage":
                spoken.append(Usage(output_tokens=1))
        return steps, spoken

    def finished(self, shape: Sequence[str]) -> tuple[Finished, list[NewMessage]]:
        """Finished messages, in the form of the plain store and in that of the real one."""
        plain: Finished = []
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

    # --- sessions ---------------------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        """Create the first session: an empty store has nothing to test."""
        for owner, address in (("ada", "kitchen"), ("ada", "porch"), ("bob", "kitchen")):
            self.resolve(handle=0, owner=owner, address=address, ttl=None, happened="nothing", pick=0)
        for pick in (1, 2, 3):
            self.talk(handle=0, pick=pick)

    @rule(handle=handles, owner=owners, address=addresses, ttl=ttls, happened=meanwhile, pick=picks)
    def resolve(self, *, handle: int, owner: str, address: str, ttl: Ttl | None, happened: str, pick: int) -> None:
        self.since(happened, pick)
        idle, absolute = (None, None) if ttl is None else (_ms(ttl.idle), _ms(ttl.absolute))
        session, how, generation = self.plain.resolve(address, owner, idle, absolute)
        resolved = self.stores[handle].resolve(ADDRESSES[address], owner=owner, ttl=ttl)
        self.two.learn_session(session, resolved.session.id)
        assert (resolved.how, resolved.generation) == (how, generation)

    @rule(handle=handles, pick=picks, verb=st.sampled_from(["touch", "pin", "unpin", "point"]), happened=meanwhile)
    @precondition(lambda self: self.plain.sessions)
    def file(self, handle: int, pick: int, verb: str, happened: str) -> None:
        self.since(happened, pick)
        session, store = self.session(pick, self.open), self.stores[handle]
        named, owner = id_of(session), session.owner
        if verb == "touch":
            self.two.tell(lambda: self.plain.touch(session), lambda: touch(store, named, owner=owner))
        elif verb == "point":
            porch = ADDRESSES["porch"]
            self.two.tell(lambda: self.plain.point("porch", session), lambda: store.point(porch, named, owner=owner))
        else:
            pinned = verb == "pin"
            self.two.tell(lambda: self.plain.pin(session, pinned), lambda: store.pin(named, pinned, owner=owner))

    @rule(handle=handles, pick=picks, title=st.sampled_from([None, "Soup", "Bread"]), by_agent=st.booleans())
    @precondition(lambda self: self.plain.sessions)
    def rename(self, handle: int, pick: int, title: str | None, by_agent: bool) -> None:
        session, store = self.session(pick, self.open), self.stores[handle]
        self.two.tell(
            lambda: self.plain.rename(session, title, by_agent=by_agent),
            lambda: store.rename(id_of(session), title, owner=session.owner, by="agent" if by_agent else "person"),
        )

    @rule(handle=handles, pick=picks, happened=meanwhile)
    @precondition(lambda self: len(self.plain.sessions) > 3)
    def end(self, handle: int, pick: int, happened: str) -> None:
        self.since(happened, pick)
        session, store = self.session(pick), self.stores[handle]
        self.two.tell(lambda: self.plain.end(session), lambda: store.end(id_of(session), owner=session.owner))

    @rule(handle=handles, pick=picks)
    @precondition(lambda self: len(self.plain.sessions) > 3)
    def delete(self, handle: int, pick: int) -> None:
        session, store = self.session(pick), self.stores[handle]
        removed = self.plain.delete(session)
        deleted = store.delete(id_of(session), owner=session.owner)
        followed = store.events_after(id_of(session), self.two.cursor(session), owner=session.owner)
        assert (deleted.messages, deleted.turns, deleted.kept_messages) == removed
        assert [event.body for event in followed.events] == [SessionDeleted()]

    # --- turns ------------------------------------------------------------------------------------------------------

    @rule(
        handle=handles,
        owner=owners,
        pick=picks,
        address=st.none() | addresses,
        agent=agents,
        if_busy=if_busy,
        start=st.sampled_from([True, True, False]),
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
        address: str | None,
        agent: str,
        if_busy: IfBusy,
        start: bool,
        request: str | None,
        happened: str,
    ) -> None:
        self.since(happened, pick)
        to = address or self.session(pick, self.open)
        owner = owner if isinstance(to, str) else to.owner
        words = [self.word()]
        if request is not None:
            self.sent.append((to, owner, request, words))
        self.send(handle, to, words, owner=owner, agent=agent, if_busy=if_busy, start=start, request=request)

    @rule(
        handle=handles,
        pick=picks,
        by=st.sampled_from(["the same name", "the same name", "an address", "a session"]),
        other=picks,
        agent=agents,
        if_busy=if_busy,
        start=st.booleans(),
    )
    @precondition(lambda self: self.sent and len(self.plain.sessions) < MOST_SESSIONS)
    def deliver_again(
        self, *, handle: int, pick: int, by: str, other: int, agent: str, if_busy: IfBusy, start: bool
    ) -> None:
        accepted = [sent for sent in self.sent if pick % 6 == 0 or self.plain.accepted(*sent[1:])] or self.sent
        to, owner, request, words = accepted[pick % len(accepted)]
        if by == "an address":
            to = sorted(ADDRESSES)[other % len(ADDRESSES)]
        elif by == "a session":
            mine = [session for session in self.plain.sessions if session.owner == owner]
            to = mine[other % len(mine)] if mine else to
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
        holder = store.worker if start else None
        known = (owner, request) in self.plain.requests
        answers = self.two.tell(
            lambda: self.plain.submit(
                to, words, owner=owner, agent=agent, if_busy=if_busy, holder=holder, request=request
            ),
            lambda: store.submit(
                ADDRESSES[to] if isinstance(to, str) else id_of(to),
                words[0],
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
            self.two.accepted(turn, answer)
            self.two.opened(opened, answer.opened)

    @rule(handle=handles, pick=picks, shape=shapes, reject=st.booleans(), expect=expected, happened=meanwhile)
    @precondition(lambda self: self.plain.sessions)
    def record(
        self, *, handle: int, pick: int, shape: Sequence[str], reject: bool, expect: int | None, happened: str
    ) -> None:
        self.since(happened, pick)
        session, store = self.session(pick, self.open), self.stores[handle]
        plain, real = self.finished(shape)
        revision = None if expect is None else session.revision + expect
        busy: IfBusy = "reject" if reject else "enqueue"
        answers = self.two.tell(
            lambda: self.plain.record(session, plain, if_busy=busy, expect_revision=revision),
            lambda: store.record(id_of(session), real, owner=session.owner, if_busy=busy, expect_revision=revision),
        )
        if answers is not None:
            self.two.learn_turn(answers[0], answers[1].turn.id)

    @rule(handle=handles, pick=picks)
    @precondition(lambda self: self.plain.sessions)
    def talk(self, handle: int, pick: int) -> None:
        for shape in (("user", "assistant"), ("user", "call", "tool", "assistant"), ("user",)):
            self.record(handle=handle, pick=pick, shape=shape, reject=True, expect=None, happened="nothing")

    @rule(handle=handles, pick=picks, agents=served, happened=meanwhile)
    @precondition(lambda self: self.plain.sessions)
    def claim_in(self, handle: int, pick: int, agents: Sequence[str], happened: str) -> None:
        self.since(happened, pick)
        session, store = self.session(pick, lambda one: bool(one.queue)), self.stores[handle]
        turn = self.plain.claim(agents, session, store.worker)
        self.two.opened(turn, store.claim(agents, session=id_of(session), owner=session.owner))

    @rule(handle=handles, pick=picks, agents=served, happened=meanwhile)
    def claim_anywhere(self, handle: int, pick: int, agents: Sequence[str], happened: str) -> None:
        self.since(happened, pick)
        oldest, store = {session.id: session for session in self.plain.claimable(agents)}, self.stores[handle]
        proof = store.claim(agents)
        assert (proof is None) == (not oldest)
        if proof is not None:
            self.two.opened(self.plain.claim(agents, oldest[proof.session], store.worker), proof)

    @rule(pick=picks, kinds=bodies, take=st.booleans(), late=st.sampled_from([False, False, False, True]))
    @precondition(lambda self: self.session_is_busy())
    def checkpoint(self, pick: int, kinds: list[str], take: bool, late: bool) -> None:
        self.since("the lease lapses" if late else "nothing", pick)
        turn = self.speaker(pick)
        steps, spoken = self.answer(kinds, turn)
        taken = self.plain.checkpoint(turn, steps, take)
        answer = self.two.holder(turn).checkpoint(self.two.proofs[turn], spoken, take_steering=take)
        self.two.proofs[turn] = answer.open
        assert [one.turn for one in answer.steering] == [one.id for one in taken]
        assert answer.inbox.waiting == len(turn.session.ready)
        assert answer.inbox.steering == len([one for one in turn.session.ready if one.steer])
        assert answer.inbox.cancel == turn.cancelling

    @rule(pick=picks)
    @precondition(lambda self: self.session_is_busy())
    def renew(self, pick: int) -> None:
        turn = self.speaker(pick)
        self.plain.renew(turn)
        self.two.proofs[turn] = self.two.holder(turn).renew(self.two.proofs[turn]).open

    @rule(
        pick=picks, outcome=outcomes, kinds=bodies, agents=served, compact=st.sampled_from([False, False, False, True])
    )
    @precondition(lambda self: self.session_is_busy())
    def finish(self, pick: int, outcome: Outcome, kinds: list[str], agents: Sequence[str], compact: bool) -> None:
        turn = self.speaker(pick)
        store, proof = self.two.holder(turn), self.two.proofs[turn]
        steps, spoken = self.answer(kinds, turn)
        length, opened = self.plain.finish(turn, outcome, steps, agents, store.worker, compact=compact)
        answer = store.finish(proof, OUTCOMES[outcome](), bodies=spoken, agents=agents, compact=compact)
        assert (answer.window, answer.length) == (proof.window, length)
        assert answer.unbroken, "nobody else can change what a turn reads while it runs"
        assert answer.context == proof.context + bool(answer.messages)
        self.two.opened(opened, answer.opened)
        if compact and answer.opened is not None:
            assert answer.opened.found == answer.context

    @rule(handle=handles, pick=picks, happened=meanwhile)
    @precondition(lambda self: self.plain.sessions)
    def compact(self, handle: int, pick: int, happened: str) -> None:
        self.since(happened, pick)
        session, store = self.session(pick, self.idle), self.stores[handle]
        answers = self.two.tell(
            lambda: self.plain.compact(session, store.worker),
            lambda: store.compact(id_of(session), owner=session.owner),
        )
        if answers is not None:
            (turn, opened), answer = answers
            self.two.learn_turn(turn, answer.turn.id)
            self.two.opened(opened, answer.opened)

    @rule(handle=handles, pick=picks, take=st.booleans(), happened=meanwhile)
    @precondition(lambda self: self.turn(0))
    def cancel(self, handle: int, pick: int, take: bool, happened: str) -> None:
        self.since(happened, pick)
        turn, store = self.turn(pick), self.stores[handle]
        assert turn is not None
        self.two.tell(
            lambda: self.plain.cancel(turn, take),
            lambda: store.cancel(turn_id(turn), owner=turn.session.owner, take=take),
        )

    @rule(handle=handles, pick=picks, edit=st.booleans())
    @precondition(lambda self: self.turn(0))
    def change_what_waits(self, handle: int, pick: int, edit: bool) -> None:
        turn, store = self.turn(pick), self.stores[handle]
        assert turn is not None
        owner, words = turn.session.owner, [self.word()]
        if edit:
            self.two.tell(
                lambda: self.plain.edit_waiting(turn, words),
                lambda: store.edit_waiting(turn_id(turn), words[0], owner=owner),
            )
        else:
            self.two.tell(
                lambda: self.plain.withdraw(turn),
                lambda: store.withdraw(turn_id(turn), owner=owner),
            )

    @rule(handle=handles, pick=picks, happened=meanwhile)
    @precondition(lambda self: any(turn.held for session in self.plain.sessions for turn in session.queue))
    def release(self, handle: int, pick: int, happened: str) -> None:
        self.since(happened, pick)
        held = [turn for session in self.plain.sessions for turn in session.queue if turn.held]
        turn, store = held[pick % len(held)] if held and pick % 6 else self.turn(pick), self.stores[handle]
        assert turn is not None
        self.two.tell(
            lambda: self.plain.release(turn),
            lambda: store.release(turn_id(turn), owner=turn.session.owner),
        )

    @rule(handle=handles, pick=picks, verb=st.sampled_from(["checkpoint", "renew", "finish", "rotate"]))
    @precondition(lambda self: self.two.stale)
    def write_with_a_stale_proof(self, handle: int, pick: int, verb: str) -> None:
        with pytest.raises(LeaseLost):
            _write(self.stores[handle], self.two.stale[pick % len(self.two.stale)], verb)

    # --- history ----------------------------------------------------------------------------------------------------

    @rule(handle=handles, pick=picks, times=st.sampled_from([1, 1, 1, 2, 3]), expect=expected, happened=meanwhile)
    @precondition(lambda self: self.plain.sessions)
    def undo(self, *, handle: int, pick: int, times: int, expect: int | None, happened: str) -> None:
        self.since(happened, pick)
        session, store = self.session(pick, self.idle), self.stores[handle]
        revision = None if expect is None else session.revision + expect
        for _ in range(times):
            self.two.tell(
                lambda: self.plain.undo(session, revision if times == 1 else None),
                lambda: store.undo(
                    id_of(session), owner=session.owner, expect_revision=revision if times == 1 else None
                ),
            )

    @rule(handle=handles, pick=picks, expect=expected)
    @precondition(lambda self: self.plain.sessions)
    def redo(self, handle: int, pick: int, expect: int | None) -> None:
        session, store = self.session(pick, lambda one: one.window.reason == "undo"), self.stores[handle]
        revision = None if expect is None else session.revision + expect
        self.two.tell(
            lambda: self.plain.redo(session, revision),
            lambda: store.redo(id_of(session), owner=session.owner, expect_revision=revision),
        )

    @rule(handle=handles, pick=picks, agent=maybe_agents, start=st.booleans(), happened=meanwhile)
    @precondition(lambda self: self.plain.sessions)
    def retry(self, handle: int, pick: int, agent: str | None, start: bool, happened: str) -> None:
        self.since(happened, pick)
        session, store = self.session(pick, self.idle), self.stores[handle]
        answers = self.two.tell(
            lambda: self.plain.retry(session, agent, store.worker if start else None),
            lambda: store.retry(id_of(session), owner=session.owner, agent=agent, start=start),
        )
        if answers is not None:
            (turn, opened), answer = answers
            self.two.accepted(turn, answer)
            self.two.opened(opened, answer.opened)

    @rule(handle=handles, pick=picks, which=picks, agent=maybe_agents, start=st.booleans())
    @precondition(lambda self: self.plain.sessions and self.plain.existing)
    def edit(self, handle: int, pick: int, which: int, agent: str | None, start: bool) -> None:
        session, store = self.session(pick, self.idle), self.stores[handle]
        said, words = self.message(session, which), [self.word()]
        answers = self.two.tell(
            lambda: self.plain.edit(session, said, words, agent, store.worker if start else None),
            lambda: store.edit(
                id_of(session), message_id(said), words[0], owner=session.owner, agent=agent, start=start
            ),
        )
        if answers is not None:
            (turn, opened), answer = answers
            self.two.accepted(turn, answer)
            self.two.opened(opened, answer.opened)

    @rule(handle=handles, pick=picks, which=st.none() | picks, happened=meanwhile)
    @precondition(lambda self: 0 < len(self.plain.sessions) < MOST_SESSIONS and self.plain.existing)
    def fork(self, handle: int, pick: int, which: int | None, happened: str) -> None:
        self.since(happened, pick)
        session, store = self.session(pick, lambda one: bool(one.messages)), self.stores[handle]
        at = None if which is None else self.message(session, which)
        answers = self.two.tell(
            lambda: self.plain.fork(session, at),
            lambda: store.fork(id_of(session), owner=session.owner, at=None if at is None else message_id(at)),
        )
        if answers is not None:
            self.two.learn_session(answers[0], answers[1].id)

    @rule(handle=handles, pick=picks, keep=st.integers(-1, 8), old=st.sampled_from([1, 1, 1, 2, 3]), happened=meanwhile)
    @precondition(lambda self: self.plain.sessions)
    def rotate(self, handle: int, pick: int, keep: int, old: int, happened: str) -> None:
        self.since(happened, pick)
        session, store = self.session(pick, self.idle), self.stores[handle]
        parent = session.window if old == 1 else session.windows[-min(old, len(session.windows))]
        keep = keep % (len(parent.messages) + 1) if pick % 6 else keep
        summary = [self.word()]
        answers = self.two.tell(
            lambda: self.plain.rotate(session, parent, keep, summary, None),
            lambda: store.rotate(
                id_of(session),
                [message.summary(summary[0])],
                owner=session.owner,
                parent=window_id(parent),
                keep_from=keep,
            ),
        )
        if answers is not None:
            assert answers[0] == answers[1].won

    @rule(pick=picks, keep=st.integers(0, 8))
    @precondition(lambda self: self.session_is_busy())
    def rotate_within_a_turn(self, pick: int, keep: int) -> None:
        turn = self.speaker(pick)
        session, summary, proof = turn.session, [self.word()], self.two.proofs[turn]
        keep = keep % (len(session.messages) + 1) if pick % 6 else keep
        answers = self.two.tell(
            lambda: self.plain.rotate(session, session.window, keep, summary, turn),
            lambda: self.two.holder(turn).rotate(
                id_of(session),
                [message.summary(summary[0])],
                owner=session.owner,
                parent=proof.window,
                keep_from=keep,
                turn=proof,
            ),
        )
        if answers is not None:
            won, rotated = answers
            assert rotated.won == won
            assert rotated.open is not None
            assert (rotated.open.window, rotated.open.context) == (rotated.window.id, rotated.context)
            self.two.proved(turn, rotated.open)

    # --- elsewhere --------------------------------------------------------------------------------------------------

    @rule(pick=picks, addresses=st.booleans())
    @precondition(lambda self: self.plain.sessions)
    def travel(self, pick: int, addresses: bool) -> None:
        self.two.travel(self.session(pick), addresses=addresses)

    @rule(handle=handles, pick=picks, owner=owners, addresses=st.booleans(), agent=maybe_agents, if_busy=if_busy)
    @precondition(lambda self: len(self.plain.sessions) < MOST_SESSIONS - 1 and self.unforked(0))
    def adopt(self, *, handle: int, pick: int, owner: str, addresses: bool, agent: str | None, if_busy: IfBusy) -> None:
        session = self.unforked(pick)
        assert session is not None
        if agent is not None:
            # Documents with waiting turns are the interesting ones.
            words, whose = [self.word()], session.owner
            self.send(handle, session, words, owner=whose, agent=agent, if_busy=if_busy, start=False, request=None)
        self.two.adopt(handle, session, owner, addresses=addresses)

    # --- maintenance and time ---------------------------------------------------------------------------------------

    @rule(handle=handles, happened=meanwhile, pick=picks)
    def reap(self, handle: int, happened: str, pick: int) -> None:
        self.since(happened, pick)
        reaped = self.plain.reap()
        assert set(self.stores[handle].reap()) == {turn.id for turn in reaped}

    @rule(handle=handles, keep=st.sampled_from([None, 100.0]), happened=meanwhile, pick=picks)
    def collect(self, handle: int, keep: float | None, happened: str, pick: int) -> None:
        self.since(happened, pick)
        collected = self.plain.collect(keep)
        found = self.stores[handle].collect(keep_closed_for=keep)
        assert (found.expired, found.deleted, found.messages) == collected

    @rule(handle=handles, older_than=st.sampled_from([0.0, 60.0]))
    def fold(self, handle: int, older_than: float) -> None:
        self.stores[handle].fold(older_than=older_than)
        assert self.stores[handle].fold(older_than=older_than) == 0
        self.two.compare_stories()

    @rule(seconds=st.sampled_from([1.0, 20.0, 45.0, 120.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(pick=picks)
    def a_holder_dies(self, pick: int) -> None:
        self.since("a holder dies", pick)


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _write(store: Store, proof: OpenTurn, verb: str) -> None:
    """Write with a proof that may be stale."""
    if verb == "checkpoint":
        store.checkpoint(proof, [Text("too late")])
    elif verb == "renew":
        store.renew(proof)
    elif verb == "finish":
        store.finish(proof, OUTCOMES["completed"]())
    else:
        late = [message.summary("too late")]
        store.rotate(proof.session, late, owner=proof.owner, parent=proof.window, keep_from=1, turn=proof)


def test_any_sequence_of_verbs_matches_a_model_of_plain_lists(places: Places) -> None:
    run_state_machine_as_test(
        lambda: Sessions(places.fresh()),  # type: ignore[arg-type]  # any factory will do
        settings=settings(
            max_examples=tries(2, 8, 3_000) if places.far else tries(12, 60, 3_000),
            stateful_step_count=tries(50, 50, 80),
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
