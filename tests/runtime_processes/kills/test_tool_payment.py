"""A process is killed inside a tool that pays: no payment is repeated unnoticed, and unknown effects stay marked."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest

import backstay
from backstay import Address, Text, ToolCall, ToolResult, open_store
from backstay.agents.port import AgentTurn
from backstay.agents.tools import tool
from backstay.model.content import Body
from backstay.model.event import TurnEnded, TurnStarted
from backstay.model.turn import Cancelled, Completed, Interrupted, ToolCallRecord, TurnInfo
from tests.databases import Place
from tests.runtime_processes.app_programs import CHAT, LONG, Setting, work
from tests.runtime_processes.child_process import Child
from tests.runtime_processes.turn_in_child import ME, echo, host, play, said, spoken

ASKED = "pay 5"
PAY = ("call", "pay", {"amount": 5})


class Shop:
    """A store with a file of the keys of all payments."""

    def __init__(self, path: Place, payments: Path) -> None:
        self.path, self._payments = path, payments

    def payments(self) -> list[str]:
        """The key of every payment that was made."""
        return self._payments.read_text().split() if self._payments.exists() else []

    def cashier(self, *, idempotent: bool = False, on_interrupt: Literal["leave", "resume"] = "leave") -> Child:
        """A process that serves the agent, and its tool."""
        return Child(
            work,
            self.path,
            Setting(payments=self._payments, idempotent=idempotent, on_interrupt=on_interrupt),
        )

    def heir(self, *, idempotent: bool = False) -> Child:
        """A process that resumes interrupted turns."""
        return self.cashier(idempotent=idempotent, on_interrupt="resume")

    def pay_and_die(self, *, idempotent: bool = False) -> str:
        """Kill a process after its payment and before the result is stored; returns the key of the payment."""
        with self.cashier(idempotent=idempotent) as child:
            child.send_order("app", "send", ASKED)
            child.receive("speaking", ASKED)
            child.send_order(ASKED, *PAY)
            (key,) = child.receive("inside", "pay")
            child.pass_away()
        return str(key)

    def messages(self) -> list[tuple[str, str]]:
        with open_store(self.path, lease_seconds=LONG) as store:
            return [
                spoken(message) for message in store.messages(store.list(owner=ME).sessions[0].id, owner=ME).messages
            ]

    def turns(self) -> list[TurnInfo]:
        """The turns of the chat that ran, in order."""
        with open_store(self.path, lease_seconds=LONG) as store:
            (session,) = store.list(owner=ME).sessions
            events = store.events_after(session.id, owner=ME).events
            started = [event.turn for event in events if event.turn and isinstance(event.body, TurnStarted)]
            return [store.turn(turn, owner=ME) for turn in started]

    def ledger(self) -> list[ToolCallRecord]:
        root = self.turns()[0].root
        with open_store(self.path, lease_seconds=LONG) as store:
            return list(store.ledger(root, owner=ME))


@pytest.fixture
def shop(place: Place, tmp_path: Path) -> Shop:
    return Shop(place, tmp_path / "payments")


# --- the next message -----------------------------------------------------------------------------------------------


def test_the_next_message_pays_nothing_and_the_agent_reads_of_the_unknown_call(shop: Shop) -> None:
    key = shop.pay_and_die()

    with shop.cashier() as child:
        child.send_order("app", "send", "go on")
        child.receive("speaking", "go on")
        child.send_order("go on", "recall")
        (history,) = child.receive("go on", "reads")

    assert shop.payments() == [key]
    (asked, called, answered, now) = history
    assert (asked, now) == (("user", (Text(ASKED),)), ("user", (Text("go on"),)))
    assert called == ("assistant", (ToolCall("ledger-1", "pay", {"amount": 5}),))
    ((result,), role) = (answered[1], answered[0])
    assert (role, type(result), result.id, result.error) == ("tool", ToolResult, "ledger-1", True)
    assert "may or may not have run" in result.output


async def test_an_agent_that_runs_every_call_without_a_result_pays_nothing_after_a_crash(shop: Shop) -> None:
    key = shop.pay_and_die()

    async with backstay.open(shop.path, agent=eager, notify=False, lease_seconds=LONG) as app:
        session = await app.session(CHAT)
        assert await (await session.send("go on")).outcome() == Completed()
        result = await said(session)

    assert result[-1] == ("assistant", "nothing left to do")
    assert shop.payments() == [key]


def test_the_outcome_names_the_call_that_may_have_run(shop: Shop) -> None:
    shop.pay_and_die()

    with open_store(shop.path, lease_seconds=LONG) as store:
        (session,) = store.list(owner=ME).sessions
        (ended,) = [
            event.body for event in store.events_after(session.id, owner=ME).events if isinstance(event.body, TurnEnded)
        ]

    assert isinstance(ended.outcome, Interrupted)
    assert ended.may_have_run == ("ledger-1",)
    assert [(call.name, call.effect) for call in shop.ledger()] == [("pay", "unknown")]


async def eager(turn: AgentTurn) -> AsyncIterator[Body]:
    """Behaves as agent frameworks do with a history: first runs the calls that have no result."""
    calls = [part for message in turn.messages for part in message.parts if isinstance(part, ToolCall)]
    results = {part.id for message in turn.messages for part in message.parts if isinstance(part, ToolResult)}
    for call in calls:
        if call.id not in results:
            yield Text(await turn.call(PAY_AT_ONCE, call.arguments))
    yield Text("nothing left to do")


@tool(name="pay")
def PAY_AT_ONCE(amount: int) -> str:  # noqa: N802  # the decorator makes a value of it
    """Pay, which this test never wants."""
    raise AssertionError(f"{amount} were paid again")


# --- resumption -----------------------------------------------------------------------------------------------------


def test_a_tool_that_cannot_be_repeated_is_not_and_the_resumed_agent_is_informed(shop: Shop) -> None:
    key = shop.pay_and_die()

    with shop.heir() as heir:
        heir.receive("speaking", ASKED)
        heir.send_order(ASKED, *PAY)
        kind, why = heir.receive(ASKED, "called")
        _finish(heir, "I may have paid already")

    assert kind == "MayHaveRun"
    assert "and may have run" in why
    assert shop.payments() == [key]
    assert shop.messages() == [("user", ASKED), ("assistant", "…"), ("assistant", "I may have paid already")]


def test_a_retry_loop_and_all_resuming_turns_are_rejected_until_a_decision(shop: Shop) -> None:
    key = shop.pay_and_die()
    answers = []

    for _ in range(3):
        with shop.heir() as heir:
            heir.receive("speaking", ASKED)
            for _ in range(3):
                heir.send_order(ASKED, *PAY)
                answers.append(heir.receive(ASKED, "called")[0])
            heir.pass_away()

    assert answers == ["MayHaveRun"] * 9
    assert shop.payments() == [key]
    assert [(call.key, call.effect) for call in shop.ledger()] == [(key, "unknown")]


def test_a_payment_that_a_person_allowed_again_is_made_once_under_a_new_key(shop: Shop) -> None:
    key = shop.pay_and_die()
    (call,) = shop.ledger()
    with open_store(shop.path, lease_seconds=LONG) as store:
        store.approve(call.turn, call.call, owner=ME, arguments_hash=call.arguments_hash, run_again=True)

    with shop.heir() as heir:
        heir.receive("speaking", ASKED)
        heir.send_order(ASKED, *PAY)
        (second,) = heir.receive("inside", "pay")
        heir.pass_away()
    with shop.heir() as heir:
        heir.receive("speaking", ASKED)
        heir.send_order(ASKED, *PAY)
        kind, _ = heir.receive(ASKED, "called")
        _finish(heir, "I may have paid already")

    assert kind == "MayHaveRun"
    assert second != key
    assert shop.payments() == [key, second]
    assert [(call.key, call.effect, call.run_again) for call in shop.ledger()] == [
        (key, "unknown", "used"),
        (second, "unknown", "none"),
    ]


def test_a_tool_that_can_be_repeated_is_run_again_under_the_same_key(shop: Shop) -> None:
    key = shop.pay_and_die(idempotent=True)

    with shop.heir(idempotent=True) as heir:
        heir.receive("speaking", ASKED)
        heir.send_order(ASKED, *PAY)
        heir.receive("inside", "pay", key)
        heir.send_order("pay", "return")
        answer = heir.receive(ASKED, "called")
        _finish(heir, "paid")

    assert answer == ("returned", "paid 5")
    assert shop.payments() == [key, key]
    assert [(call.key, call.effect) for call in shop.ledger()] == [(key, "returned")]


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_result_that_was_recorded_is_reused(shop: Shop, idempotent: bool) -> None:
    with shop.cashier(idempotent=idempotent) as child:
        child.send_order("report")
        child.send_order("app", "send", ASKED)
        child.receive("speaking", ASKED)
        child.send_order(ASKED, *PAY)
        (key,) = child.receive("inside", "pay")
        child.send_order("pay", "return")
        child.receive("stored", "tool_returned")
        child.pass_away()

    with shop.heir(idempotent=idempotent) as heir:
        heir.receive("speaking", ASKED)
        heir.send_order(ASKED, *PAY)
        answer = heir.receive(ASKED, "called")
        _finish(heir, "paid")

    assert answer == ("returned", "paid 5")
    assert shop.payments() == [key]


def test_a_turn_that_died_before_its_call_was_written_down_makes_it_once(shop: Shop) -> None:
    with shop.cashier() as child:
        child.send_order("app", "send", ASKED)
        child.receive("speaking", ASKED)
        child.pass_away()

    with shop.heir() as heir:
        heir.receive("speaking", ASKED)
        heir.send_order(ASKED, *PAY)
        (key,) = heir.receive("inside", "pay")
        heir.send_order("pay", "return")
        _finish(heir, "paid")

    assert shop.payments() == [key]


def test_of_two_calls_the_stored_result_is_reused_and_the_other_may_have_run(shop: Shop) -> None:
    with shop.cashier() as child:
        child.send_order("app", "send", ASKED)
        child.receive("speaking", ASKED)
        child.send_order(ASKED, *PAY)
        child.send_order("pay", "return")
        (first,) = child.receive("inside", "pay")
        child.send_order(ASKED, *PAY)
        (second,) = child.receive("inside", "pay")
        child.pass_away()

    with shop.heir() as heir:
        heir.receive("speaking", ASKED)
        answers = []
        for _ in range(2):
            heir.send_order(ASKED, *PAY)
            answers.append(heir.receive(ASKED, "called")[0])
        heir.send_order(ASKED, "call", "pay", {"amount": 7})
        (third,) = heir.receive("inside", "pay")
        heir.send_order("pay", "return")
        _finish(heir, "paid")

    assert answers == ["returned", "MayHaveRun"]
    assert shop.payments() == [first, second, third]
    assert len({first, second, third}) == 3


def test_a_resumed_agent_that_acts_otherwise_first_still_learns_of_the_unknown_call(shop: Shop) -> None:
    key = shop.pay_and_die()

    with shop.heir() as heir:
        heir.receive("speaking", ASKED)
        heir.send_order(ASKED, "call", "look", {"at": "account"})
        heir.send_order("look", "return")
        assert heir.receive(ASKED, "called") == ("returned", "looked at account")
        heir.send_order(ASKED, *PAY)
        kind, _ = heir.receive(ASKED, "called")
        _finish(heir, "I may have paid already")

    assert kind == "MayHaveRun"
    assert shop.payments() == [key]


def test_a_turn_that_is_killed_again_and_again_repeats_its_call_under_one_key(shop: Shop) -> None:
    key = shop.pay_and_die(idempotent=True)
    for _ in range(2):
        with shop.heir(idempotent=True) as heir:
            heir.receive("speaking", ASKED)
            heir.send_order(ASKED, *PAY)
            heir.receive("inside", "pay", key)
            heir.pass_away()

    with shop.heir(idempotent=True) as heir:
        heir.receive("speaking", ASKED)
        heir.send_order(ASKED, *PAY)
        heir.receive("inside", "pay", key)
        heir.send_order("pay", "return")
        _finish(heir, "paid")

    assert shop.payments() == [key] * 4
    assert [type(turn.outcome) for turn in shop.turns()] == [Interrupted, Interrupted, Interrupted, Completed]
    assert len({turn.root for turn in shop.turns()}) == 1


@pytest.mark.parametrize("heirs", [2, 3])
async def test_of_several_resuming_processes_one_resumes(shop: Shop, heirs: int) -> None:
    key = shop.pay_and_die(idempotent=True)

    children = [shop.heir(idempotent=True) for _ in range(heirs)]
    try:
        for heir in children:
            heir.send_order(ASKED, *PAY)
            heir.send_order("pay", "return")
            heir.send_order(ASKED, "end")
            heir.receive("open")
        await _until_ended(shop, 2)
        for heir in children:
            heir.terminate()
        reports = [heir.everything() for heir in children]
    finally:
        for heir in children:
            heir.__exit__(None, None, None)

    assert sum(words[0] == "speaking" for report in reports for words in report) == 1
    assert shop.payments() == [key, key]
    assert [type(turn.outcome) for turn in shop.turns()] == [Interrupted, Completed]


def test_a_process_resumes_a_turn_that_another_found_dead(shop: Shop) -> None:
    key = shop.pay_and_die()
    assert [type(turn.outcome) for turn in shop.turns()] == [Interrupted]

    with shop.heir(idempotent=True) as heir:
        heir.receive("speaking", ASKED)
        heir.send_order(ASKED, *PAY)
        heir.receive("inside", "pay", key)


def test_an_undone_turn_is_not_resumed(shop: Shop) -> None:
    key = shop.pay_and_die()
    with open_store(shop.path, lease_seconds=LONG) as store:
        store.undo(store.list(owner=ME).sessions[0].id, owner=ME)

    with shop.heir() as heir:
        heir.receive("open")
        heir.send_order("app", "send", "next")
        (history,) = heir.receive("speaking", "next")

    assert history == [("user", "next")]
    assert shop.payments() == [key]


async def test_a_process_resumes_a_turn_while_other_work_waits(shop: Shop) -> None:
    key = shop.pay_and_die()

    async with host(shop.path) as app:
        elsewhere = await app.session(Address.chat("telegram", "dm", chat="elsewhere"))
        await elsewhere.send("hello")

    with shop.heir() as heir:
        heir.receive("speaking", "hello")
        heir.receive("speaking", ASKED)

    assert shop.payments() == [key]


@pytest.mark.parametrize("verb", ["list", "messages", "send again"])
def test_a_process_resumes_a_turn_whichever_verb_finds_it_dead(shop: Shop, verb: str) -> None:
    shop.pay_and_die()

    async def scenario() -> object:
        async with backstay.open(shop.path, agent=echo, notify=False, lease_seconds=LONG, on_interrupt="resume") as app:
            if verb == "list":
                await app.sessions()
            session = await app.session(CHAT)
            if verb == "messages":
                await session.messages()
            turn = await session.send(ASKED, request_id=ASKED)
            async for event in session.follow():
                if isinstance(event.body, TurnEnded) and event.turn != turn.id:
                    return event.body.outcome
            raise AssertionError("a story that is followed does not end")

    assert play(scenario()) == Completed()


def test_a_running_process_resumes_as_soon_as_the_other_is_dead(shop: Shop) -> None:
    with shop.cashier() as child:
        child.send_order("app", "send", ASKED)
        child.receive("speaking", ASKED)
        with shop.heir() as heir:
            heir.receive("open")
            child.pass_away()

            heir.receive("speaking", ASKED)


async def test_a_turn_waiting_behind_an_interrupted_one_is_answered_instead_of_a_resume(shop: Shop) -> None:
    with shop.cashier() as child:
        for text in (ASKED, "never mind"):
            child.send_order("app", "send", text)
            child.receive("sent", text)
        child.send_order(ASKED, *PAY)
        (key,) = child.receive("inside", "pay")
        child.pass_away()

    with shop.heir() as heir:
        heir.receive("speaking", "never mind")
        heir.send_order("never mind", "end")
        await _until_ended(shop, 2)

    assert shop.payments() == [key]
    assert [type(turn.outcome) for turn in shop.turns()] == [Interrupted, Completed]


def test_a_turn_with_a_cancel_request_is_not_resumed(shop: Shop) -> None:
    with shop.cashier() as child:
        child.send_order("app", "send", ASKED)
        child.receive("speaking", ASKED)
        child.send_order(ASKED, "resist")
        child.receive(ASKED, "resists")
        child.receive("sent", ASKED)
        with open_store(shop.path, lease_seconds=LONG) as store:
            (session,) = store.list(owner=ME).sessions
            assert session.running is not None
            store.cancel(session.running, owner=ME)
        child.receive(ASKED, "resisted")
        child.pass_away()

    with shop.heir() as heir:
        heir.receive("open")
        heir.send_order("app", "send", "next")
        heir.receive("speaking", "next")
        stopped, following = shop.turns()

    assert isinstance(stopped.outcome, Cancelled)
    assert following.root == following.id


# --- approvals ------------------------------------------------------------------------------------------------------

WIPE = ("call", "wipe", {"at": "disk"})


def test_a_tool_not_approved_when_its_process_died_has_not_run(shop: Shop) -> None:
    _ask_and_die(shop)

    with open_store(shop.path, lease_seconds=LONG) as store:
        (session,) = store.list(owner=ME).sessions
        (ended,) = [
            event.body for event in store.events_after(session.id, owner=ME).events if isinstance(event.body, TurnEnded)
        ]

    assert isinstance(ended.outcome, Interrupted)
    assert ended.may_have_run == ()


def test_an_approval_can_be_given_after_a_restart_and_the_tool_runs_once(shop: Shop) -> None:
    _ask_and_die(shop)

    with shop.heir() as heir, open_store(shop.path, lease_seconds=LONG) as store:
        heir.receive("speaking", ASKED)
        heir.send_order("report")
        heir.send_order(ASKED, *WIPE)
        heir.receive("stored", "tool_called")
        heir.receive("stored", "tool_called")
        resumed = shop.turns()[-1]
        (call,) = store.calls(resumed.id, owner=ME)
        store.approve(resumed.id, call.call, owner=ME, arguments_hash=call.arguments_hash)
        heir.send_order("look", "return")
        answer = heir.receive(ASKED, "called")
        _finish(heir, "wiped")

    assert answer == ("returned", "looked at disk")


@pytest.mark.parametrize("approve", [True, False])
def test_a_decision_while_no_turn_runs_is_not_asked_again(shop: Shop, approve: bool) -> None:
    _ask_and_die(shop)
    with open_store(shop.path, lease_seconds=LONG) as store:
        (turn,) = shop.turns()
        (call,) = store.calls(turn.id, owner=ME)
        decide = store.approve if approve else store.deny
        decide(turn.id, call.call, owner=ME, arguments_hash=call.arguments_hash)

    with shop.heir() as heir:
        heir.receive("speaking", ASKED)
        heir.send_order("look", "return")
        heir.send_order(ASKED, *WIPE)
        kind, _ = heir.receive(ASKED, "called")

    assert kind == ("returned" if approve else "ToolFailed")


def test_a_denial_before_a_restart_is_not_asked_again(shop: Shop) -> None:
    with shop.cashier() as child, open_store(shop.path, lease_seconds=LONG) as store:
        child.send_order("report")
        child.send_order("app", "send", ASKED)
        child.receive("speaking", ASKED)
        child.send_order(ASKED, *WIPE)
        child.receive("stored", "tool_called")
        (session,) = store.list(owner=ME).sessions
        assert session.running is not None
        (call,) = store.calls(session.running, owner=ME)
        store.deny(session.running, call.call, owner=ME)
        child.receive(ASKED, "called")
        child.send_order(ASKED, "steering")
        child.receive(ASKED, "took")
        child.pass_away()

    with shop.heir() as heir:
        heir.receive("speaking", ASKED)
        heir.send_order(ASKED, *WIPE)
        kind, why = heir.receive(ASKED, "called")

    assert kind == "ToolFailed"
    assert "denied by a person" in why


def _ask_and_die(shop: Shop) -> None:
    """Kill a process while it waits for a person's approval."""
    with shop.cashier() as child:
        child.send_order("report")
        child.send_order("app", "send", ASKED)
        child.receive("speaking", ASKED)
        child.send_order(ASKED, *WIPE)
        child.receive("stored", "tool_called")
        child.pass_away()


# --- steps ----------------------------------------------------------------------------------------------------------


def _finish(child: Child, words: str) -> None:
    """Let the resumed turn send its last output; the process then ends cleanly."""
    child.send_order(ASKED, "say", words)
    child.send_order(ASKED, "end")
    child.receive(ASKED, "did", "say")
    child.terminate()
    child.ends_well()


async def _until_ended(shop: Shop, turns: int) -> None:
    """Wait until this number of turns of the chat has ended."""
    async with host(shop.path) as app:
        session = await app.session(CHAT)
        async for event in session.follow():
            turns -= isinstance(event.body, TurnEnded)
            if not turns:
                return
