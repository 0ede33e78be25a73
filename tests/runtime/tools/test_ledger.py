"""The tool-effect ledger: a call is durable before it runs, its result after, and nothing is run twice unnoticed."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec
import pytest

import backstay
from backstay import Address, Text, Timing, ToolCall, ToolResult, open_store
from backstay.agents.adapters import AgentLike
from backstay.agents.blocking_agent import BlockingAgentTurn
from backstay.agents.port import AgentTurn
from backstay.agents.tools import MayHaveRun, Tool, ToolFailed, tool
from backstay.errors import Conflict
from backstay.model.content import Body, Json
from backstay.model.event import ToolCalled, ToolReturned, TurnEnded
from backstay.model.ids import TurnId
from backstay.model.message import Message
from backstay.model.turn import Cancelled, Completed, Failed, Interrupted, ToolCallRecord
from backstay.runtime.turn_handle import Turn
from tests.databases import Place
from tests.runtime.controlled_agents import (
    PATIENCE,
    AgentFunction,
    Gate,
    echo,
    events_of_turn,
    play,
    roles_and_texts,
    until,
)

# The ledger is part of the contract of stores; here it is what the runtime makes of it.
pytestmark = pytest.mark.engines("sqlite")
every_engine = pytest.mark.engines("sqlite", "postgres")

CHAT = Address.chat("telegram", "dm", chat="42")
AT_ONCE = Timing(grace=0, poll=0.005)


def calls_of(path: Place, turn: TurnId) -> tuple[ToolCallRecord, ...]:
    """The ledger of a turn as other processes read it."""
    with open_store(path) as store:
        return store.calls(turn, owner="local")


def calling(*calls: tuple[Tool, dict[str, Any]]) -> AgentFunction:
    """An agent that calls these tools one after the other and reports the results."""

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        for one, arguments in calls:
            try:
                yield Text(f"{await turn.call(one, arguments)} ")
            except (ToolFailed, MayHaveRun) as error:
                yield Text(f"{type(error).__name__} ")

    return agent


async def asked(turn: Turn) -> ToolCallRecord:
    """The turn's call that waits for approval, once there is one."""
    async for event in turn.events():
        if isinstance(event.body, ToolCalled) and event.body.call.approval:
            return next(call for call in await turn.calls() if call.call == event.body.call.id)
    raise AssertionError("the turn ended without asking")


# --- intent and result ------------------------------------------------------------------------------------------------


@every_engine
async def test_a_call_is_stored_before_its_tool_runs_its_result_before_the_agent_has_it(path: Place) -> None:
    effects: list[str] = []

    @tool
    def pay(amount: int) -> str:
        (call,) = calls_of(path, backstay.current().id)
        effects.append(call.effect)
        return f"paid {amount}"

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        assert await turn.call(pay, {"amount": 5}) == "paid 5"
        (call,) = calls_of(path, turn.id)
        effects.append(call.effect)
        yield Text("done")

    async with backstay.open(path, agent=agent) as app:
        assert await (await (await app.session()).send("pay")).outcome() == Completed()
    assert effects == ["called", "returned"]


async def test_a_tool_is_handed_the_key_of_its_call_and_only_if_it_wants_it(path: Place) -> None:
    keys: list[str] = []

    @tool
    def pay(amount: int, key: str) -> None:
        keys.append(key)

    @tool
    async def post(key: str) -> None:
        keys.append(key)

    @tool
    def look() -> str:
        return "nothing"

    agent = calling((pay, {"amount": 5}), (post, {}), (look, {}), (pay, {"amount": 5}))
    async with backstay.open(path, agent=agent) as app:
        turn = await (await app.session()).send("pay")
        events = [event.body for event in await events_of_turn(turn)]
        called = [body for body in events if isinstance(body, ToolCalled)]
        assert [body.call.arguments for body in called] == [{"amount": 5}, {}, {}, {"amount": 5}]
        assert [body.key for body in called] == [call.key for call in await turn.calls()]
        assert keys == [called[0].key, called[1].key, called[3].key]
        assert len(set(keys)) == 3
        assert all(key.startswith(turn.id) for key in keys)


async def test_a_tool_error_is_stored_and_raised_in_the_agent_which_may_continue(path: Place) -> None:
    @tool
    def broken() -> None:
        raise ValueError("no such account")

    @tool
    async def also_broken() -> None:
        raise KeyError("account")

    @tool
    def rude() -> None:
        sys.exit(3)

    agent = calling((broken, {}), (also_broken, {}), (rude, {}), (broken, {"unknown": 1}))
    async with backstay.open(path, agent=agent) as app:
        session = await app.session()
        turn = await session.send("pay")
        assert await turn.outcome() == Completed()
        returned = [e.body.result for e in await events_of_turn(turn) if isinstance(e.body, ToolReturned)]
        assert all(result.error for result in returned)
        assert [result.output.partition(" (")[0] for result in returned] == [
            "it raised ValueError",
            "it raised KeyError",
            "it raised SystemExit",
            "it raised TypeError",
        ]
        assert {call.effect for call in await turn.calls()} == {"returned"}
        said = "".join(message.text for message in await session.messages() if message.role == "assistant")
        assert said.split() == ["ToolFailed"] * 4


async def test_a_tools_error_that_the_agent_does_not_catch_fails_the_turn(path: Place) -> None:
    @tool
    def broken() -> None:
        raise ValueError("no such account")

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("I pay. ")
        await turn.call(broken, {})

    async with backstay.open(path, agent=agent) as app:
        outcome = await (await (await app.session()).send("pay")).outcome()
        assert isinstance(outcome, Failed)
        assert outcome.reason.startswith("broken failed: it raised ValueError (turn trn_")


@pytest.mark.parametrize(
    "output",
    [object(), {1, 2}, b"bytes", float("nan"), datetime.now(UTC), "\ud800", 1 << 80, "x" * (1 << 21)],
    ids=type,
)
async def test_a_tool_with_an_unstorable_result_fails_and_the_turn_continues(path: Place, output: object) -> None:
    @tool
    def odd() -> object:
        return output

    async with backstay.open(path, agent=calling((odd, {}))) as app:
        session = await app.session()
        turn = await session.send("look")
        assert await turn.outcome() == Completed()
        assert [call.effect for call in await turn.calls()] == ["returned"]
        assert (await session.messages())[-1].text == "ToolFailed "


async def test_tools_that_block_run_beside_each_other_and_beside_the_loop(path: Place) -> None:
    together = threading.Barrier(12)

    @tool
    def meet() -> str:
        together.wait(PATIENCE)
        return "met"

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(" ".join(await asyncio.gather(*(turn.call(meet, {}) for _ in range(12)))))

    async with backstay.open(path, agent=agent) as app:
        session = await app.session()
        assert await (await session.send("meet")).outcome() == Completed()
        assert (await session.messages())[-1].text.split() == ["met"] * 12


@every_engine
async def test_parallel_calls_each_get_their_own_result(path: Place) -> None:
    @tool
    async def double(number: int) -> int:
        for _ in range(10 - number):
            await asyncio.sleep(0)
        return 2 * number

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        doubled = await asyncio.gather(*(turn.call(double, {"number": number}) for number in range(10)))
        assert doubled == [2 * number for number in range(10)]
        yield Text("right")

    async with backstay.open(path, agent=agent) as app:
        session = await app.session()
        turn = await session.send("double")
        assert await turn.outcome() == Completed()
        bodies = [event.body for event in await events_of_turn(turn)]
        numbers = {b.call.id: b.call.arguments["number"] for b in bodies if isinstance(b, ToolCalled)}
        results = {b.result.id: b.result.output for b in bodies if isinstance(b, ToolReturned)}
        assert results == {call: 2 * number for call, number in numbers.items()}
        assert len({call.key for call in await turn.calls()}) == 10


async def test_a_call_whose_arguments_fill_the_buffer_runs_like_any_other(path: Place) -> None:
    @tool
    def measure(text: str) -> int:
        return len(text)

    agent = calling((measure, {"text": "x" * 5_000}), (measure, {"text": ""}))
    async with backstay.open(path, agent=agent, timing=Timing(buffer_bytes=100)) as app:
        session = await app.session()
        assert await (await session.send("measure")).outcome() == Completed()
        assert [text for role, text in roles_and_texts(await session.messages()) if role == "assistant"][-1] == "0 "


async def test_calls_that_an_agent_reports_itself_do_not_clash_with_those_of_the_ledger(path: Place) -> None:
    @tool
    def look() -> str:
        return "found"

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        for number in range(3):
            yield ToolCall(f"call-{number}", "elsewhere", {})
            yield ToolResult(f"call-{number}", number)
        yield Text(await turn.call(look, {}))

    async with backstay.open(path, agent=agent) as app:
        assert await (await (await app.session()).send("look")).outcome() == Completed()


async def test_a_blocking_agent_calls_tools_through_the_same_ledger(path: Place) -> None:
    @tool
    def pay(key: str) -> str:
        return key

    @tool
    async def broken() -> None:
        raise ValueError("no such account")

    def agent(turn: BlockingAgentTurn) -> Iterator[Body]:
        key = turn.call(pay, {})
        assert [call.key for call in calls_of(path, turn.id)] == [key]
        with pytest.raises(ToolFailed):
            turn.call(broken, {})
        yield Text("done")

    async with backstay.open(path, agent=agent) as app:
        turn = await (await app.session()).send("pay")
        assert await turn.outcome() == Completed()
        assert [call.effect for call in await turn.calls()] == ["returned"] * 2


# --- approvals --------------------------------------------------------------------------------------------------------


class Till:
    """A tool that needs approval before it pays, and records the keys of its payments."""

    def __init__(self, *, idempotent: bool = False, approval: bool = True) -> None:
        self.keys: list[str] = []
        self.pay = tool(name="pay", approval=approval, idempotent=idempotent)(self._pay)

    def _pay(self, amount: int, key: str) -> str:
        self.keys.append(key)
        return f"paid {amount}"


@every_engine
async def test_a_tool_that_asks_runs_only_after_a_person_has_agreed(path: Place, notify: bool) -> None:
    till = Till()
    async with (
        backstay.open(path, agent=calling((till.pay, {"amount": 5})), notify=notify),
        backstay.open(path, notify=notify) as elsewhere,
    ):
        session = await elsewhere.session()
        turn = await session.send("pay")
        call = await asked(turn)
        assert (call.approval, till.keys) == ("asked", [])
        await turn.approve(call.call, arguments_hash=call.arguments_hash)
        assert await turn.outcome() == Completed()
        assert till.keys == [call.key]
        assert (await session.messages())[-1].text == "paid 5 "


async def test_a_denied_tool_never_runs_and_the_agent_gets_an_error(path: Place, notify: bool) -> None:
    till = Till()
    async with backstay.open(path, agent=calling((till.pay, {"amount": 5})), notify=notify) as app:
        session = await app.session()
        turn = await session.send("pay")
        await turn.deny((await asked(turn)).call)
        assert await turn.outcome() == Completed()
        assert (till.keys, (await session.messages())[-1].text) == ([], "ToolFailed ")
        ended = (await events_of_turn(turn))[-1].body
        assert isinstance(ended, TurnEnded)
        assert ended.may_have_run == ()


async def test_an_approval_is_bound_to_the_arguments_that_were_shown(path: Place) -> None:
    till = Till()
    async with backstay.open(path, agent=calling((till.pay, {"amount": 5}))) as app:
        turn = await (await app.session()).send("pay")
        call = await asked(turn)
        with pytest.raises(Conflict):
            await turn.approve(call.call, arguments_hash="0" * 32)
        assert till.keys == []
        await turn.cancel()


async def test_cancelling_a_turn_that_waits_for_approval_leaves_a_call_that_did_not_run(
    path: Place, notify: bool
) -> None:
    till = Till()
    async with backstay.open(path, agent=calling((till.pay, {"amount": 5})), notify=notify) as app:
        turn = await (await app.session()).send("pay")
        await asked(turn)
        assert isinstance(await turn.cancel(), Cancelled)
        ended = (await events_of_turn(turn))[-1].body
        assert isinstance(ended, TurnEnded)
        assert (till.keys, ended.may_have_run) == ([], ())


async def test_a_call_that_waits_for_approval_does_not_outlive_its_turn(path: Place) -> None:
    waiting: list[asyncio.Task[Any]] = []
    gate = Gate()

    till = Till()

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        waiting.append(asyncio.create_task(turn.call(till.pay, {"amount": 5})))
        yield Text("asked. ")
        await gate.stop_here()

    async with backstay.open(path, agent=agent) as app:
        turn = await (await app.session()).send("pay")
        await asked(turn)
        gate.open()
        assert await turn.outcome() == Completed()
        with pytest.raises(backstay.BackstayError):
            await waiting[0]
        assert till.keys == []


@every_engine
@pytest.mark.parametrize("decided", ["later", "approved", "denied"])
def test_an_approval_survives_a_restart(path: Place, decided: str, notify: bool) -> None:
    till = Till()
    agent = calling((till.pay, {"amount": 5}))

    async def first_day() -> ToolCallRecord:
        async with backstay.open(path, agent=agent, timing=AT_ONCE, notify=notify) as app:
            turn = await (await app.session(CHAT)).send("pay")
            return await asked(turn)

    async def next_day() -> str:
        async with backstay.open(path, agent=agent, on_interrupt="resume", notify=notify) as app:
            session = await app.session(CHAT)
            resumed = (await session.read()).running
            if decided == "later":
                assert resumed is not None
                turn = await app.turn(resumed)
                call = await asked(turn)
                assert till.keys == []
                await turn.approve(call.call, arguments_hash=call.arguments_hash)
            async for event in session.follow():
                if isinstance(event.body, TurnEnded) and isinstance(event.body.outcome, Completed):
                    break
            return (await session.messages())[-1].text

    call = play(first_day())
    with open_store(path) as store:
        assert isinstance(store.turn(call.turn, owner="local").outcome, Interrupted)
        if decided == "approved":
            store.approve(call.turn, call.call, owner="local", arguments_hash=call.arguments_hash)
        elif decided == "denied":
            store.deny(call.turn, call.call, owner="local")

    said = play(next_day())

    assert (said, till.keys) == (("ToolFailed ", []) if decided == "denied" else ("paid 5 ", [call.key]))


# --- after an interruption --------------------------------------------------------------------------------------------


def interrupted(path: Place, bodies: Sequence[Body]) -> TurnId:
    """A turn whose process died after this output."""
    with open_store(path) as store:
        opened = store.submit(CHAT, "pay", owner="local", start=True).opened
        assert opened is not None
        store.checkpoint(opened, bodies)
    with open_store(path) as store:
        assert isinstance(store.turn(opened.id, owner="local").outcome, Interrupted)
    return opened.id


async def resumed(path: Place, agent: AgentLike) -> tuple[str, list[Message]]:
    """The output of the resumed agent, and all messages then."""
    async with backstay.open(path, agent=agent, on_interrupt="resume") as app:
        session = await app.session(CHAT)
        async for event in session.follow():
            if isinstance(event.body, TurnEnded) and not isinstance(event.body.outcome, Interrupted):
                break
        messages = list(await session.messages())
        return messages[-1].text, messages


async def test_a_result_that_was_stored_is_used_again_and_its_tool_is_not_run(path: Place) -> None:
    till = Till(approval=False)
    interrupted(path, [ToolCall("call-1", "pay", {"amount": 5}), ToolResult("call-1", "paid 5")])

    said, _ = await resumed(path, calling((till.pay, {"amount": 5})))

    assert (said, till.keys) == ("paid 5 ", [])


async def test_a_stored_error_is_raised_again_and_its_tool_is_not_run(path: Place) -> None:
    till = Till(approval=False)
    interrupted(path, [ToolCall("call-1", "pay", {"amount": 5}), ToolResult("call-1", "broke", error=True)])

    said, _ = await resumed(path, calling((till.pay, {"amount": 5})))

    assert (said, till.keys) == ("ToolFailed ", [])


async def test_a_tool_that_may_have_run_is_never_run_again_silently(path: Place) -> None:
    till = Till(approval=False)
    interrupted(path, [ToolCall("call-1", "pay", {"amount": 5})])

    said, _ = await resumed(path, calling((till.pay, {"amount": 5})))

    assert (said, till.keys) == ("MayHaveRun ", [])


class Delivery(msgspec.Struct):
    """How a payment is sent."""

    fast: bool = True
    note: str = ""


class Currency(StrEnum):
    """The currency of a payment."""

    EUR = "EUR"
    USD = "USD"


def paying(paid: list[str], hint: object, default: object) -> Tool:
    """A tool with a second parameter of this type and default; it notes the key of every payment."""

    def pay(amount: int, key: str, how: Any = default) -> str:
        paid.append(key)
        return "paid"

    pay.__annotations__["how"] = hint
    return tool(pay)


# The type of a parameter, its default, and the default as a model may spell it out.
DEFAULTS: dict[str, tuple[object, object, Json]] = {
    "text": (str, "EUR", "EUR"),
    "nothing": (str | None, None, None),
    "fraction": (float, 1.5, 1.5),
    "list": (list[int], [1, 2], [1, 2]),
    "tuple": (tuple[int, ...], (), []),
    "object": (dict[str, int], {}, {}),
    "enum": (Currency, Currency.EUR, "EUR"),
    "struct": (Delivery, Delivery(), {"fast": True, "note": ""}),
    "part of a struct": (Delivery, Delivery(), {"note": ""}),
    "time": (datetime, datetime(2030, 1, 1, tzinfo=UTC), "2030-01-01T00:00:00+00:00"),
    "without a type": (Any, (1, {"a": 2}), [1, {"a": 2}]),
    "unknown type": ("Unknown", "EUR", "EUR"),
}


@pytest.mark.parametrize("spelled_first", [True, False], ids=["spelled out first", "left out first"])
@pytest.mark.parametrize("case", DEFAULTS)
async def test_an_argument_that_is_left_out_is_the_same_as_its_default(
    path: Place, case: str, spelled_first: bool
) -> None:
    hint, default, spelled = DEFAULTS[case]
    paid: list[str] = []
    pay = paying(paid, hint, default)
    short: dict[str, Json] = {"amount": 5}
    full: dict[str, Json] = {"how": spelled, "amount": 5.0}
    first, then = (full, short) if spelled_first else (short, full)
    interrupted(path, [ToolCall("call-1", "pay", first)])

    _, messages = await resumed(path, calling((pay, then), (pay, {"amount": 6})))

    assert "".join(message.text for message in messages[2:]).split() == ["MayHaveRun", "paid"]
    assert len(paid) == 1


async def test_another_value_than_the_default_is_another_call(path: Place) -> None:
    paid: list[str] = []
    interrupted(path, [ToolCall("call-1", "pay", {"amount": 5})])

    said, _ = await resumed(path, calling((paying(paid, str, "EUR"), {"amount": 5, "how": "USD"})))

    assert (said, len(paid)) == ("paid ", 1)


SPELLINGS: list[dict[str, Json]] = [{"amount": 5}, {"amount": 5, "how": "EUR"}]


@pytest.mark.parametrize("then", SPELLINGS, ids=["as before", "spelled out"])
async def test_a_decision_holds_however_the_agent_spells_the_call(path: Place, then: dict[str, Json]) -> None:
    paid: list[str] = []
    turn = interrupted(path, [ToolCall("call-1", "pay", {"amount": 5})])
    (before,) = calls_of(path, turn)
    with open_store(path) as store:
        store.approve(turn, before.call, owner="local", arguments_hash=before.arguments_hash, run_again=True)

    said, _ = await resumed(path, calling((paying(paid, str, "EUR"), then)))

    assert (said, len(paid)) == ("paid ", 1)
    assert paid != [before.key]
    assert [call.run_again for call in calls_of(path, turn)] == ["used"]


@pytest.mark.parametrize("then", SPELLINGS, ids=["as before", "spelled out"])
async def test_a_stored_result_is_used_however_the_agent_spells_the_call(path: Place, then: dict[str, Json]) -> None:
    paid: list[str] = []
    interrupted(path, [ToolCall("call-1", "pay", {"amount": 5}), ToolResult("call-1", "paid before")])

    said, _ = await resumed(path, calling((paying(paid, str, "EUR"), then)))

    assert (said, paid) == ("paid before ", [])


@pytest.mark.parametrize("then", SPELLINGS, ids=["as before", "spelled out"])
async def test_an_idempotent_tool_gets_its_key_however_the_agent_spells_the_call(
    path: Place, then: dict[str, Json]
) -> None:
    paid: list[str] = []
    turn = interrupted(path, [ToolCall("call-1", "pay", {"amount": 5}, idempotent=True)])
    (before,) = calls_of(path, turn)
    pay = msgspec.structs.replace(paying(paid, str, "EUR"), idempotent=True)

    said, _ = await resumed(path, calling((pay, then)))

    assert (said, paid) == ("paid ", [before.key])


async def test_an_idempotent_tool_is_run_again_with_the_same_key(path: Place) -> None:
    till = Till(idempotent=True, approval=False)
    first = interrupted(path, [ToolCall("call-1", "pay", {"amount": 5}, idempotent=True)])
    (call,) = calls_of(path, first)

    said, _ = await resumed(path, calling((till.pay, {"amount": 5})))

    assert (said, till.keys) == ("paid 5 ", [call.key])


@every_engine
async def test_earlier_calls_are_found_in_any_order(path: Place) -> None:
    till = Till(approval=False)
    interrupted(
        path,
        [
            ToolCall("call-1", "pay", {"amount": 1}),
            ToolCall("call-2", "pay", {"amount": 2}),
            ToolResult("call-2", "paid 2"),
            ToolCall("call-3", "pay", {"amount": 3}),
        ],
    )

    agent = calling(*((till.pay, {"amount": amount}) for amount in (4, 3, 2, 1)))
    _, messages = await resumed(path, agent)

    assert "".join(message.text for message in messages[3:]).split() == "paid 4 MayHaveRun paid 2 MayHaveRun".split()
    assert len(till.keys) == 1


async def test_a_call_made_more_often_than_before_is_run_for_the_rest(path: Place) -> None:
    till = Till(approval=False)
    interrupted(path, [ToolCall("call-1", "pay", {"amount": 5}), ToolResult("call-1", "paid 5")])

    _, messages = await resumed(path, calling(*[(till.pay, {"amount": 5})] * 3))

    assert len(till.keys) == len(set(till.keys)) == 2
    assert "".join(message.text for message in messages).count("paid 5") == 3


@every_engine
def test_a_turn_that_is_interrupted_repeatedly_keeps_its_ledger(path: Place) -> None:
    till = Till(approval=False)
    days: list[asyncio.Event] = []

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(f"{await turn.call(till.pay, {'amount': 5})} ")
        days[-1].set()
        await asyncio.Event().wait()

    async def day() -> None:
        days.append(asyncio.Event())
        async with backstay.open(path, agent=agent, timing=AT_ONCE, on_interrupt="resume") as app:
            session = await app.session(CHAT)
            if (await session.read()).running is None:
                await session.send("pay")
            await days[-1].wait()

    for _ in range(3):
        play(day())

    assert len(till.keys) == 1


# --- a call that may have run stays refused ---------------------------------------------------------------------------


def died_paying(path: Place) -> ToolCallRecord:
    """The call of a process that died in a payment."""
    (call,) = calls_of(path, interrupted(path, [ToolCall("call-1", "pay", {"amount": 5, "to": {"a": 1, "b": 2}})]))
    return call


class Cash:
    """A tool that pays at once, and records the keys of its payments."""

    def __init__(self, *, approval: bool = False) -> None:
        self.keys: list[str] = []
        self.pay = tool(name="pay", approval=approval)(self._pay)

    def _pay(self, amount: int, to: dict[str, int], key: str) -> str:
        self.keys.append(key)
        return f"paid {amount}"


FIRST: dict[str, Any] = {"amount": 5, "to": {"a": 1, "b": 2}}
REORDERED: dict[str, Any] = {"to": {"b": 2, "a": 1}, "amount": 5}
OTHER_NUMBERS: dict[str, Any] = {"amount": 5.0, "to": {"a": 1.0, "b": 2}}


@pytest.mark.parametrize("again", [FIRST, REORDERED, OTHER_NUMBERS], ids=["same", "other key order", "5.0 for 5"])
async def test_a_call_that_may_have_run_is_rejected_every_time(path: Place, again: dict[str, Any]) -> None:
    cash = Cash()
    before = died_paying(path)

    _, messages = await resumed(path, calling((cash.pay, FIRST), (cash.pay, again), (cash.pay, again)))

    assert " ".join(message.text for message in messages).split()[-3:] == ["MayHaveRun"] * 3
    assert cash.keys == []
    assert calls_of(path, before.turn) == (before,)


async def test_parallel_calls_that_may_have_run_are_all_refused(path: Place) -> None:
    cash = Cash()
    died_paying(path)

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        made = await asyncio.gather(*(turn.call(cash.pay, FIRST) for _ in range(5)), return_exceptions=True)
        yield Text(" ".join(type(one).__name__ for one in made))

    said, _ = await resumed(path, agent)

    assert (said.split(), cash.keys) == (["MayHaveRun"] * 5, [])


def test_a_call_that_may_have_run_is_refused_in_every_turn_that_resumes_it(path: Place) -> None:
    cash = Cash()
    before = died_paying(path)
    days: list[asyncio.Event] = []

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        for _ in range(2):
            with pytest.raises(MayHaveRun):
                await turn.call(cash.pay, FIRST)
        yield Text("I do not know. ")
        days[-1].set()
        await asyncio.Event().wait()

    async def day() -> None:
        days.append(asyncio.Event())
        async with backstay.open(path, agent=agent, timing=AT_ONCE, on_interrupt="resume"):
            await days[-1].wait()

    for _ in range(3):
        play(day())

    assert cash.keys == []
    assert calls_of(path, before.turn) == (before,)


async def test_several_calls_of_unknown_effect_are_all_refused(path: Place) -> None:
    cash = Cash()
    interrupted(path, [ToolCall(f"call-{number}", "pay", FIRST) for number in range(2)])

    _, messages = await resumed(path, calling(*[(cash.pay, FIRST)] * 4))

    assert " ".join(message.text for message in messages).split()[-4:] == ["MayHaveRun"] * 4
    assert cash.keys == []


async def test_a_stored_result_is_returned_also_when_a_call_like_it_may_have_run(path: Place) -> None:
    cash = Cash()
    interrupted(
        path,
        [ToolCall("call-1", "pay", FIRST), ToolCall("call-2", "pay", FIRST), ToolResult("call-2", "paid 5")],
    )

    _, messages = await resumed(path, calling(*[(cash.pay, FIRST)] * 3))

    said = " ".join(message.text for message in messages).split()
    assert said[-4:] == ["paid", "5", "MayHaveRun", "MayHaveRun"]
    assert cash.keys == []


@every_engine
@pytest.mark.parametrize("wrapped", [False, True], ids=["async", "blocking"])
async def test_run_again_makes_a_call_that_may_have_run_under_a_new_key(path: Place, wrapped: bool) -> None:
    cash = Cash()
    before = died_paying(path)

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(await turn.call(cash.pay, FIRST, run_again=True))
        with pytest.raises(MayHaveRun):
            await turn.call(cash.pay, FIRST)

    def blocking(turn: BlockingAgentTurn) -> Iterator[Body]:
        yield Text(turn.call(cash.pay, FIRST, run_again=True))
        with pytest.raises(MayHaveRun):
            turn.call(cash.pay, FIRST)

    said, _ = await resumed(path, blocking if wrapped else agent)

    assert said == "paid 5"
    assert len(cash.keys) == 1
    assert cash.keys != [before.key]
    assert calls_of(path, before.turn) == (before,)


async def test_run_again_returns_a_stored_result_instead_of_running_the_tool(path: Place) -> None:
    cash = Cash()
    interrupted(path, [ToolCall("call-1", "pay", FIRST), ToolResult("call-1", "paid 5")])

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(await turn.call(cash.pay, FIRST, run_again=True))

    said, _ = await resumed(path, agent)

    assert (said, cash.keys) == ("paid 5", [])


async def test_run_again_of_a_tool_that_asks_asks_a_person(path: Place) -> None:
    cash = Cash(approval=True)
    before = died_paying(path)

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(await turn.call(cash.pay, FIRST, run_again=True))

    async with backstay.open(path, agent=agent, on_interrupt="resume") as app:
        session = await app.session(CHAT)
        resuming = (await session.read()).running
        assert resuming is not None
        turn = await app.turn(resuming)
        call = await asked(turn)
        assert cash.keys == []
        await turn.approve(call.call)
        assert await turn.outcome() == Completed()
        assert cash.keys == [call.key]
        assert call.key != before.key


@pytest.mark.parametrize("approval", [False, True], ids=["it does not ask", "it asks"])
async def test_a_person_allows_one_more_run_of_a_call_that_may_have_run(path: Place, approval: bool) -> None:
    cash = Cash(approval=approval)
    before = died_paying(path)
    with open_store(path) as store:
        store.approve(before.turn, before.call, owner="local", arguments_hash=before.arguments_hash, run_again=True)

    said, _ = await resumed(path, calling((cash.pay, REORDERED)))

    assert said == "paid 5 "
    assert len(cash.keys) == 1
    assert cash.keys != [before.key]
    (line,) = calls_of(path, before.turn)
    assert (line.effect, line.run_again) == ("unknown", "used")


@every_engine
async def test_a_person_may_decide_while_the_resumed_turn_runs(path: Place, notify: bool) -> None:
    cash = Cash()
    before = died_paying(path)
    gate = Gate()

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        with pytest.raises(MayHaveRun):
            await turn.call(cash.pay, FIRST)
        await gate.stop_here()
        made = await asyncio.gather(*(turn.call(cash.pay, FIRST) for _ in range(2)))
        yield Text(" and ".join(made))

    async with backstay.open(path, agent=agent, on_interrupt="resume", notify=notify) as app:
        await gate.reached()
        session = await app.session(CHAT)
        running = (await session.read()).running
        assert running is not None
        await (await app.turn(before.turn)).approve(before.call, run_again=True)
        gate.open()
        assert await (await app.turn(running)).outcome() == Completed()
        assert (await session.messages())[-1].text == "paid 5 and paid 5"
    assert len(set(cash.keys)) == 2
    assert before.key not in cash.keys


@pytest.mark.parametrize("blocks", [False, True], ids=["on the loop", "on a thread"])
async def test_a_tool_that_its_agent_gave_up_on_is_not_run_again_in_that_turn(path: Place, blocks: bool) -> None:
    begun: list[str] = []
    release = threading.Event()

    @tool(name="pay")
    async def on_the_loop(key: str) -> None:
        begun.append(key)
        await asyncio.Event().wait()

    @tool(name="pay")
    def on_a_thread(key: str) -> None:
        begun.append(key)
        release.wait(PATIENCE)

    pay = on_a_thread if blocks else on_the_loop

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        call = asyncio.create_task(turn.call(pay, {}))
        await until(lambda: bool(begun))
        call.cancel()
        await asyncio.wait({call})
        assert call.cancelled()
        for _ in range(2):
            with pytest.raises(MayHaveRun):
                await turn.call(pay, {})
        yield Text("I gave up")

    async with backstay.open(path, agent=agent) as app:
        turn = await (await app.session()).send("pay")
        assert await turn.outcome() == Completed()
        assert [call.effect for call in await turn.calls()] == ["unknown"]
    release.set()
    assert len(begun) == 1


async def test_an_abandoned_idempotent_tool_is_repeated_under_the_same_key(path: Place) -> None:
    begun: list[str] = []

    @tool(idempotent=True)
    async def pay(key: str) -> str:
        begun.append(key)
        if len(begun) == 1:
            await asyncio.Event().wait()
        return "paid"

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        call = asyncio.create_task(turn.call(pay, {}))
        await until(lambda: bool(begun))
        call.cancel()
        await asyncio.wait({call})
        yield Text(await turn.call(pay, {}))

    async with backstay.open(path, agent=agent) as app:
        turn = await (await app.session()).send("pay")
        assert await turn.outcome() == Completed()
        assert [(call.effect, call.key) for call in await turn.calls()] == [("returned", begun[0])]
    assert begun == [begun[0]] * 2


async def test_an_agent_that_gave_up_waiting_for_a_person_waits_on_for_the_same_answer(path: Place) -> None:
    till, gave_up = Till(), asyncio.Event()

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        call = asyncio.create_task(turn.call(till.pay, {"amount": 5}))
        await until(lambda: bool(calls_of(path, turn.id)))
        call.cancel()
        await asyncio.wait({call})
        gave_up.set()
        yield Text(await turn.call(till.pay, {"amount": 5}))

    async with backstay.open(path, agent=agent) as app:
        turn = await (await app.session()).send("pay")
        call = await asked(turn)
        await gave_up.wait()
        await turn.approve(call.call)
        assert await turn.outcome() == Completed()
        assert [line.key for line in await turn.calls()] == till.keys == [call.key]


# --- the history of an agent ------------------------------------------------------------------------------------------


def check_valid(messages: Sequence[Message]) -> None:
    """Every call is answered exactly once, directly after the message that made it, and nothing else is."""
    expected: list[str] = []
    for message in messages:
        results = [part.id for part in message.parts if isinstance(part, ToolResult)]
        calls = [part.id for part in message.parts if isinstance(part, ToolCall)]
        if expected:
            assert (message.role, sorted(results)) == ("tool", sorted(expected))
        else:
            assert not results
        expected = calls
    assert not expected


WHOLE: list[Body] = [
    Text("first "),
    ToolCall("a", "look", {}),
    ToolCall("b", "look", {}),
    ToolResult("b", 2),
    ToolResult("a", 1),
    Text("then "),
    ToolCall("c", "look", {}),
    ToolResult("c", 3),
    ToolCall("d", "look", {}),
    Text("talking over it "),
    ToolResult("d", 4),
    ToolCall("e", "look", {}),
    ToolCall("f", "look", {}),
    ToolResult("f", 6),
]


async def test_the_turn_after_any_interruption_reads_a_valid_history(path: Place) -> None:
    gates = {length: Gate() for length in range(len(WHOLE) + 1)}

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        if turn.input.text == "and now?":
            check_valid(turn.messages)
            return
        yield Text("so. ")
        for body in WHOLE[: int(turn.input.text)]:
            yield body
        await gates[int(turn.input.text)].stop_here()

    async def cut_off(app: backstay.App, length: int) -> None:
        session = await app.session()
        turn = await session.send(f"{length}")
        await gates[length].reached()
        assert isinstance(await turn.cancel(), Cancelled)
        outcome = await (await session.send("and now?")).outcome()
        assert outcome == Completed("the agent sent no output")

    async with backstay.open(path, agent=agent) as app:
        await asyncio.gather(*(cut_off(app, length) for length in gates))


async def test_steering_between_calls_never_comes_between_a_call_and_its_result(path: Place) -> None:
    gate, waiting = Gate(), Gate()

    @tool
    async def slow() -> str:
        await gate.stop_here()
        return "done"

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        if turn.input.text == "and now?":
            check_valid(turn.messages)
            yield Text("valid")
            return
        yield Text("working. ")
        call = asyncio.create_task(turn.call(slow, {}))
        await asyncio.gather(gate.reached(), waiting.stop_here())
        assert len(await turn.steering()) == 1
        gate.open()
        yield Text(await call)

    async with backstay.open(path, agent=agent) as app:
        session = await app.session()
        turn = await session.send("work")
        await gate.reached()
        await session.steer("faster")
        waiting.open()
        assert await turn.outcome() == Completed()
        assert await (await session.send("and now?")).outcome() == Completed()
        assert ("user", "faster") in roles_and_texts(await session.messages())


def test_a_tool_interrupted_by_closing_is_read_as_one_that_may_have_run(path: Place) -> None:
    began = asyncio.Event()

    @tool
    async def pay() -> None:
        began.set()
        await asyncio.Event().wait()

    async def first_day() -> TurnId:
        async with backstay.open(path, agent=calling((pay, {})), timing=AT_ONCE) as app:
            turn = await (await app.session(CHAT)).send("pay")
            await began.wait()
            return turn.id

    async def next_day(first: TurnId) -> None:
        seen: list[tuple[Message, ...]] = []

        async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
            seen.append(turn.messages)
            yield Text("I see")

        async with backstay.open(path, agent=agent) as app:
            ended = (await events_of_turn(await app.turn(first)))[-1].body
            assert isinstance(ended, TurnEnded)
            assert isinstance(ended.outcome, Interrupted)
            assert len(ended.may_have_run) == 1
            await (await (await app.session(CHAT)).send("and?")).outcome()
        check_valid(seen[0])
        assert [message.role for message in seen[0]] == ["user", "assistant", "tool", "user"]

    play(next_day(play(first_day())))


async def test_a_tool_that_ignores_its_cancellation_is_abandoned_and_counted(path: Place) -> None:
    release, began = threading.Event(), threading.Event()

    @tool
    def deaf() -> None:
        began.set()
        release.wait(PATIENCE)

    agents: dict[str, Callable[[AgentTurn], AsyncIterator[Body]]] = {"default": calling((deaf, {})), "echo": echo}
    async with backstay.open(path, agents=agents) as app:
        session = await app.session()
        turn = await session.send("work")
        await asyncio.to_thread(began.wait)
        assert isinstance(await turn.cancel(), Cancelled)
        await until(lambda: app.abandoned == 1)
        assert await (await session.send("and you?", agent="echo")).outcome() == Completed()
    release.set()
