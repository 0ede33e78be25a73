"""The tool-effect ledger: a call is durable before it runs, its result after, and nothing is run twice unnoticed."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

import backstay
from backstay import Address, Text, Timing, ToolCall, ToolResult, open_store
from backstay.agents.blocking import BlockingTurn
from backstay.agents.port import AgentTurn
from backstay.agents.tools import MayHaveRun, Tool, ToolFailed, tool
from backstay.errors import Conflict
from backstay.model.content import Body
from backstay.model.event import ToolCalled, ToolReturned, TurnEnded
from backstay.model.ids import TurnId
from backstay.model.message import Message
from backstay.model.turn import Call, Cancelled, Completed, Failed, Interrupted
from backstay.runtime.turn import TurnHandle
from tests.databases import Place
from tests.runtime.stage import PATIENCE, AgentFunction, Gate, echo, play, story_of, told, until

CHAT = Address.chat("telegram", "dm", chat="42")
AT_ONCE = Timing(grace=0, poll=0.005)


def calls_of(path: Place, turn: TurnId) -> tuple[Call, ...]:
    """The ledger of a turn as anybody else reads it."""
    with open_store(path) as store:
        return store.calls(turn, owner="local")


def calling(*calls: tuple[Tool, dict[str, Any]]) -> AgentFunction:
    """An agent that calls these tools one after the other and says what came of it."""

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        for one, arguments in calls:
            try:
                yield Text(f"{await turn.call(one, arguments)} ")
            except (ToolFailed, MayHaveRun) as error:
                yield Text(f"{type(error).__name__} ")

    return agent


async def asked(turn: TurnHandle) -> Call:
    """The turn's call that waits for approval, once there is one."""
    async for event in turn.events():
        if isinstance(event.body, ToolCalled) and event.body.call.approval:
            return next(call for call in await turn.calls() if call.call == event.body.call.id)
    raise AssertionError("the turn ended without asking")


# --- intent and result ------------------------------------------------------------------------------------------------


def test_the_intent_is_stored_before_the_tool_runs_and_the_result_before_the_agent_sees_it(path: Place) -> None:
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

    async def story() -> None:
        async with backstay.open(path, agent=agent) as app:
            assert await (await (await app.session()).send("pay")).outcome() == Completed()

    play(story())
    assert effects == ["called", "returned"]


def test_a_tool_is_handed_the_key_of_its_call_and_only_if_it_wants_it(path: Place) -> None:
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

    async def story() -> None:
        agent = calling((pay, {"amount": 5}), (post, {}), (look, {}), (pay, {"amount": 5}))
        async with backstay.open(path, agent=agent) as app:
            turn = await (await app.session()).send("pay")
            events = [event.body for event in await story_of(turn)]
            called = [body for body in events if isinstance(body, ToolCalled)]
            assert [body.call.arguments for body in called] == [{"amount": 5}, {}, {}, {"amount": 5}]
            assert [body.key for body in called] == [call.key for call in await turn.calls()]
            assert keys == [called[0].key, called[1].key, called[3].key]
            assert len(set(keys)) == 3
            assert all(key.startswith(turn.id) for key in keys)

    play(story())


def test_a_tools_error_is_stored_and_told_to_the_agent_which_may_go_on(path: Place) -> None:
    @tool
    def broken() -> None:
        raise ValueError("no such account")

    @tool
    async def also_broken() -> None:
        raise KeyError("account")

    @tool
    def rude() -> None:
        sys.exit(3)

    async def story() -> None:
        agent = calling((broken, {}), (also_broken, {}), (rude, {}), (broken, {"unknown": 1}))
        async with backstay.open(path, agent=agent) as app:
            session = await app.session()
            turn = await session.send("pay")
            assert await turn.outcome() == Completed()
            returned = [e.body.result for e in await story_of(turn) if isinstance(e.body, ToolReturned)]
            assert all(result.error for result in returned)
            assert [result.output.partition(":")[0] for result in returned] == [
                "ValueError",
                "KeyError",
                "SystemExit",
                "TypeError",
            ]
            assert {call.effect for call in await turn.calls()} == {"returned"}
            said = "".join(message.text for message in await session.messages() if message.role == "assistant")
            assert said.split() == ["ToolFailed"] * 4

    play(story())


def test_a_tools_error_that_the_agent_does_not_catch_fails_the_turn(path: Place) -> None:
    @tool
    def broken() -> None:
        raise ValueError("no such account")

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("I pay. ")
        await turn.call(broken, {})

    async def story() -> None:
        async with backstay.open(path, agent=agent) as app:
            outcome = await (await (await app.session()).send("pay")).outcome()
            assert isinstance(outcome, Failed)
            assert "broken failed: ValueError: no such account" in outcome.reason

    play(story())


@pytest.mark.parametrize(
    "output",
    [object(), {1, 2}, b"bytes", float("nan"), datetime.now(UTC), "\ud800", 1 << 80, "x" * (1 << 21)],
    ids=type,
)
def test_a_tool_that_returns_what_cannot_be_stored_has_failed_and_the_turn_goes_on(path: Place, output: object) -> None:
    @tool
    def odd() -> object:
        return output

    async def story() -> None:
        async with backstay.open(path, agent=calling((odd, {}))) as app:
            session = await app.session()
            turn = await session.send("look")
            assert await turn.outcome() == Completed()
            assert [call.effect for call in await turn.calls()] == ["returned"]
            assert (await session.messages())[-1].text == "ToolFailed "

    play(story())


def test_tools_that_block_run_beside_each_other_and_beside_the_loop(path: Place) -> None:
    together = threading.Barrier(12)

    @tool
    def meet() -> str:
        together.wait(PATIENCE)
        return "met"

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(" ".join(await asyncio.gather(*(turn.call(meet, {}) for _ in range(12)))))

    async def story() -> None:
        async with backstay.open(path, agent=agent) as app:
            session = await app.session()
            assert await (await session.send("meet")).outcome() == Completed()
            assert (await session.messages())[-1].text.split() == ["met"] * 12

    play(story())


def test_parallel_calls_each_get_their_own_result(path: Place) -> None:
    @tool
    async def double(number: int) -> int:
        for _ in range(10 - number):
            await asyncio.sleep(0)
        return 2 * number

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        doubled = await asyncio.gather(*(turn.call(double, {"number": number}) for number in range(10)))
        assert doubled == [2 * number for number in range(10)]
        yield Text("right")

    async def story() -> None:
        async with backstay.open(path, agent=agent) as app:
            session = await app.session()
            turn = await session.send("double")
            assert await turn.outcome() == Completed()
            bodies = [event.body for event in await story_of(turn)]
            numbers = {b.call.id: b.call.arguments["number"] for b in bodies if isinstance(b, ToolCalled)}
            results = {b.result.id: b.result.output for b in bodies if isinstance(b, ToolReturned)}
            assert results == {call: 2 * number for call, number in numbers.items()}
            assert len({call.key for call in await turn.calls()}) == 10

    play(story())


def test_a_call_whose_arguments_fill_the_buffer_runs_like_any_other(path: Place) -> None:
    @tool
    def measure(text: str) -> int:
        return len(text)

    async def story() -> None:
        agent = calling((measure, {"text": "x" * 5_000}), (measure, {"text": ""}))
        async with backstay.open(path, agent=agent, timing=Timing(buffer_bytes=100)) as app:
            session = await app.session()
            assert await (await session.send("measure")).outcome() == Completed()
            assert [text for role, text in told(await session.messages()) if role == "assistant"][-1] == "0 "

    play(story())


def test_calls_that_an_agent_reports_itself_do_not_clash_with_those_of_the_ledger(path: Place) -> None:
    @tool
    def look() -> str:
        return "found"

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        for number in range(3):
            yield ToolCall(f"call-{number}", "elsewhere", {})
            yield ToolResult(f"call-{number}", number)
        yield Text(await turn.call(look, {}))

    async def story() -> None:
        async with backstay.open(path, agent=agent) as app:
            assert await (await (await app.session()).send("look")).outcome() == Completed()

    play(story())


def test_a_blocking_agent_calls_tools_through_the_same_ledger(path: Place) -> None:
    @tool
    def pay(key: str) -> str:
        return key

    @tool
    async def broken() -> None:
        raise ValueError("no such account")

    def agent(turn: BlockingTurn) -> Iterator[Body]:
        key = turn.call(pay, {})
        assert [call.key for call in calls_of(path, turn.id)] == [key]
        with pytest.raises(ToolFailed):
            turn.call(broken, {})
        yield Text("done")

    async def story() -> None:
        async with backstay.open(path, agent=agent) as app:
            turn = await (await app.session()).send("pay")
            assert await turn.outcome() == Completed()
            assert [call.effect for call in await turn.calls()] == ["returned"] * 2

    play(story())


# --- approvals --------------------------------------------------------------------------------------------------------


class Till:
    """A tool that asks before it pays, and remembers under which keys it did."""

    def __init__(self, *, idempotent: bool = False, approval: bool = True) -> None:
        self.keys: list[str] = []
        self.pay = tool(name="pay", approval=approval, idempotent=idempotent)(self._pay)

    def _pay(self, amount: int, key: str) -> str:
        self.keys.append(key)
        return f"paid {amount}"


def test_a_tool_that_asks_runs_only_after_a_person_has_agreed(path: Place, prompt: bool) -> None:
    async def story() -> None:
        till = Till()
        async with (
            backstay.open(path, agent=calling((till.pay, {"amount": 5})), prompt=prompt),
            backstay.open(path, prompt=prompt) as elsewhere,
        ):
            session = await elsewhere.session()
            turn = await session.send("pay")
            call = await asked(turn)
            assert (call.approval, till.keys) == ("asked", [])
            await turn.approve(call.call, arguments_hash=call.arguments_hash)
            assert await turn.outcome() == Completed()
            assert till.keys == [call.key]
            assert (await session.messages())[-1].text == "paid 5 "

    play(story())


def test_a_tool_that_was_denied_never_runs_and_the_agent_is_told(path: Place, prompt: bool) -> None:
    async def story() -> None:
        till = Till()
        async with backstay.open(path, agent=calling((till.pay, {"amount": 5})), prompt=prompt) as app:
            session = await app.session()
            turn = await session.send("pay")
            await turn.deny((await asked(turn)).call)
            assert await turn.outcome() == Completed()
            assert (till.keys, (await session.messages())[-1].text) == ([], "ToolFailed ")
            ended = (await story_of(turn))[-1].body
            assert isinstance(ended, TurnEnded)
            assert ended.may_have_run == ()

    play(story())


def test_an_approval_is_bound_to_the_arguments_that_were_shown(path: Place) -> None:
    async def story() -> None:
        till = Till()
        async with backstay.open(path, agent=calling((till.pay, {"amount": 5}))) as app:
            turn = await (await app.session()).send("pay")
            call = await asked(turn)
            with pytest.raises(Conflict):
                await turn.approve(call.call, arguments_hash="0" * 32)
            assert till.keys == []
            await turn.cancel()

    play(story())


def test_cancelling_a_turn_that_waits_for_approval_runs_nothing_and_may_have_run_nothing(
    path: Place, prompt: bool
) -> None:
    async def story() -> None:
        till = Till()
        async with backstay.open(path, agent=calling((till.pay, {"amount": 5})), prompt=prompt) as app:
            turn = await (await app.session()).send("pay")
            await asked(turn)
            assert isinstance(await turn.cancel(), Cancelled)
            ended = (await story_of(turn))[-1].body
            assert isinstance(ended, TurnEnded)
            assert (till.keys, ended.may_have_run) == ([], ())

    play(story())


def test_a_call_that_waits_for_approval_does_not_outlive_its_turn(path: Place) -> None:
    waiting: list[asyncio.Task[Any]] = []
    gate = Gate()

    async def story() -> None:
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

    play(story())


@pytest.mark.parametrize("decided", ["later", "approved", "denied"])
def test_an_approval_survives_a_restart(path: Place, decided: str, prompt: bool) -> None:
    till = Till()
    agent = calling((till.pay, {"amount": 5}))

    async def first_day() -> Call:
        async with backstay.open(path, agent=agent, timing=AT_ONCE, prompt=prompt) as app:
            turn = await (await app.session(CHAT)).send("pay")
            return await asked(turn)

    async def next_day() -> str:
        async with backstay.open(path, agent=agent, on_interrupt="resume", prompt=prompt) as app:
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
    """A turn whose process died after it had said this."""
    with open_store(path) as store:
        opened = store.submit(CHAT, "pay", owner="local", start=True).opened
        assert opened is not None
        store.checkpoint(opened, bodies)
    with open_store(path) as store:
        assert isinstance(store.turn(opened.id, owner="local").outcome, Interrupted)
    return opened.id


async def resumed(path: Place, agent: AgentFunction) -> tuple[str, list[Message]]:
    """What the agent says when it goes on, and all messages then."""
    async with backstay.open(path, agent=agent, on_interrupt="resume") as app:
        session = await app.session(CHAT)
        async for event in session.follow():
            if isinstance(event.body, TurnEnded) and not isinstance(event.body.outcome, Interrupted):
                break
        messages = list(await session.messages())
        return messages[-1].text, messages


def test_a_result_that_was_stored_is_used_again_and_its_tool_is_not_run(path: Place) -> None:
    till = Till(approval=False)
    interrupted(path, [ToolCall("call-1", "pay", {"amount": 5}), ToolResult("call-1", "paid 5")])

    said, _ = play(resumed(path, calling((till.pay, {"amount": 5}))))

    assert (said, till.keys) == ("paid 5 ", [])


def test_an_error_that_was_stored_is_told_again_and_its_tool_is_not_run(path: Place) -> None:
    till = Till(approval=False)
    interrupted(path, [ToolCall("call-1", "pay", {"amount": 5}), ToolResult("call-1", "broke", error=True)])

    said, _ = play(resumed(path, calling((till.pay, {"amount": 5}))))

    assert (said, till.keys) == ("ToolFailed ", [])


def test_a_tool_that_may_have_run_is_never_run_again_silently(path: Place) -> None:
    till = Till(approval=False)
    interrupted(path, [ToolCall("call-1", "pay", {"amount": 5})])

    said, _ = play(resumed(path, calling((till.pay, {"amount": 5}))))

    assert (said, till.keys) == ("MayHaveRun ", [])


def test_an_idempotent_tool_is_run_again_with_the_same_key(path: Place) -> None:
    till = Till(idempotent=True, approval=False)
    first = interrupted(path, [ToolCall("call-1", "pay", {"amount": 5}, idempotent=True)])
    (call,) = calls_of(path, first)

    said, _ = play(resumed(path, calling((till.pay, {"amount": 5}))))

    assert (said, till.keys) == ("paid 5 ", [call.key])


def test_earlier_calls_are_found_in_whatever_order_they_are_made_again(path: Place) -> None:
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
    _, messages = play(resumed(path, agent))

    assert "".join(message.text for message in messages[3:]).split() == "paid 4 MayHaveRun paid 2 MayHaveRun".split()
    assert len(till.keys) == 1


def test_a_call_made_more_often_than_before_is_run_for_the_rest(path: Place) -> None:
    till = Till(approval=False)
    interrupted(path, [ToolCall("call-1", "pay", {"amount": 5}), ToolResult("call-1", "paid 5")])

    _, messages = play(resumed(path, calling(*[(till.pay, {"amount": 5})] * 3)))

    assert len(till.keys) == len(set(till.keys)) == 2
    assert "".join(message.text for message in messages).count("paid 5") == 3


def test_a_turn_that_is_interrupted_again_and_again_still_knows_its_ledger(path: Place) -> None:
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


# --- what an agent reads ----------------------------------------------------------------------------------------------


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


def test_wherever_a_turn_was_cut_off_the_next_one_reads_a_valid_history(path: Place) -> None:
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
        assert outcome == Completed("the agent said nothing")

    async def story() -> None:
        async with backstay.open(path, agent=agent) as app:
            await asyncio.gather(*(cut_off(app, length) for length in gates))

    play(story())


def test_steering_between_calls_never_comes_between_a_call_and_its_result(path: Place) -> None:
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

    async def story() -> None:
        async with backstay.open(path, agent=agent) as app:
            session = await app.session()
            turn = await session.send("work")
            await gate.reached()
            await session.steer("faster")
            waiting.open()
            assert await turn.outcome() == Completed()
            assert await (await session.send("and now?")).outcome() == Completed()
            assert ("user", "faster") in told(await session.messages())

    play(story())


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
            ended = (await story_of(await app.turn(first)))[-1].body
            assert isinstance(ended, TurnEnded)
            assert isinstance(ended.outcome, Interrupted)
            assert len(ended.may_have_run) == 1
            await (await (await app.session(CHAT)).send("and?")).outcome()
        check_valid(seen[0])
        assert [message.role for message in seen[0]] == ["user", "assistant", "tool", "user"]

    play(next_day(play(first_day())))


def test_a_deaf_tool_is_left_behind_and_counted(path: Place) -> None:
    release, began = threading.Event(), threading.Event()

    @tool
    def deaf() -> None:
        began.set()
        release.wait(PATIENCE)

    async def story() -> None:
        agents: dict[str, Callable[[AgentTurn], AsyncIterator[Body]]] = {"default": calling((deaf, {})), "echo": echo}
        async with backstay.open(path, agents=agents) as app:
            session = await app.session()
            turn = await session.send("work")
            await asyncio.to_thread(began.wait)
            assert isinstance(await turn.cancel(), Cancelled)
            await until(lambda: app.abandoned == 1)
            assert await (await session.send("and you?", agent="echo")).outcome() == Completed()
        release.set()

    play(story())
