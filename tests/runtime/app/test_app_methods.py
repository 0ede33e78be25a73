"""The methods of an app and its sessions, as programs call them: with a path or URL, a page, a filter, a revision."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import backstay
from backstay import Address, BackstayError, NewMessage, Text, ToolCall, ToolResult
from backstay.errors import InvalidPayload, NotFound, RevisionMismatch
from backstay.model.session import SessionFilter
from backstay.model.turn import Completed
from backstay.runtime.session_handle import Session
from tests.runtime.controlled_agents import echo, nothing_can_be_written, roles_and_texts

# More than any engine writes at once: a later write has not begun while they wait.
CROWD = 32


async def test_a_store_is_opened_by_its_path_or_by_its_url(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"

    async with backstay.open(f"sqlite:///{path}", agent=echo, notify=False) as app:
        session = await app.session()
        assert await (await session.send("hello")).outcome() == Completed()
    async with backstay.open(str(path)) as app:
        assert roles_and_texts(await (await app.session(session.id)).messages())[-1] == ("assistant", "heard hello")


@pytest.mark.parametrize("where", ["", "mysql://localhost/x", "sqlite://"])
async def test_an_invalid_store_is_rejected_with_a_message(where: str) -> None:
    with pytest.raises(BackstayError) as refused:
        async with backstay.open(where, agent=echo):
            raise AssertionError("it opened")
    assert refused.value.hint


async def test_sessions_are_listed_newest_first_page_by_page_and_by_filter(path: Path) -> None:
    async with backstay.open(path, agent=echo) as app:
        sessions = [await app.session(Address.chat("telegram", "dm", chat=str(number))) for number in range(5)]
        for session in sessions:
            await (await session.send("hello")).outcome()
        await sessions[2].pin()
        await sessions[3].archive()
        first = await app.sessions(limit=2)
        rest = await app.sessions(after=first.next, limit=10)
        shown = [session.id for session in (*first.sessions, *rest.sessions)]
        assert len(set(shown)) == len(shown)
        assert set(shown) <= {session.id for session in sessions}
        archived = await app.sessions(SessionFilter(archived=True))
        assert [session.id for session in archived.sessions] == [sessions[3].id]


async def test_text_is_found_as_soon_as_its_turn_has_ended(path: Path) -> None:
    async with backstay.open(path, agent=echo) as app:
        session = await app.session()
        await (await session.send("a needle in the hay")).outcome()
        page = await app.search("needle")
        assert {hit.session for hit in page.hits} == {session.id}
        assert sorted(hit.role for hit in page.hits) == ["assistant", "user"]
        await session.undo()
        assert (await app.search("needle")).hits == ()


Verb = Callable[[Session, int], Awaitable[Any]]
GUARDED: dict[str, Verb] = {
    "send": lambda session, revision: session.send("x", expect_revision=revision),
    "record": lambda session, revision: session.record([_said("user", "x")], expect_revision=revision),
    "undo": lambda session, revision: session.undo(expect_revision=revision),
    "redo": lambda session, revision: session.redo(expect_revision=revision),
}


def _said(role: Any, *parts: Any) -> NewMessage:  # Any: also what is no role and no part
    return NewMessage(role=role, parts=tuple(Text(part) if isinstance(part, str) else part for part in parts))


@pytest.mark.parametrize("verb", GUARDED)
async def test_a_verb_that_expects_another_revision_changes_nothing(path: Path, verb: str) -> None:
    async with backstay.open(path, agent=echo) as app:
        session = await app.session()
        await (await session.send("one")).outcome()
        await (await session.send("two")).outcome()
        await session.undo()
        before = await session.read()
        with pytest.raises(RevisionMismatch):
            await GUARDED[verb](session, before.revision - 1)
        assert await session.read() == before
        await GUARDED[verb](session, before.revision)


CALL, RESULT = ToolCall("c1", "pay", {"amount": 5}), ToolResult("c1", "paid")


@pytest.mark.parametrize(
    "messages",
    [
        [_said("tool", RESULT)],
        [_said("assistant", CALL), _said("tool", RESULT), _said("tool", RESULT)],
        [_said("assistant", CALL), _said("tool", RESULT, RESULT)],
        [_said("assistant", CALL, CALL)],
        [_said("assistant", CALL), _said("tool", ToolResult("c2", "paid"))],
        [_said("tool", RESULT), _said("assistant", CALL)],
    ],
    ids=["orphan", "twice", "twice in one", "called twice", "another's", "before its call"],
)
async def test_a_record_that_no_provider_accepts_is_rejected_with_the_reason(
    path: Path, messages: list[NewMessage]
) -> None:
    async with backstay.open(path, agent=echo) as app:
        session = await app.session()
        before = await session.read()
        with pytest.raises(InvalidPayload) as refused:
            await session.record(messages)
        assert "c1" in str(refused.value) or "c2" in str(refused.value)
        assert await session.read() == before


async def test_a_call_and_its_result_may_be_recorded_one_after_the_other(path: Path) -> None:
    async with backstay.open(path, agent=echo) as app:
        session = await app.session()
        await session.record([_said("user", "pay"), _said("assistant", CALL)])
        await session.record([_said("tool", RESULT)])
        with pytest.raises(InvalidPayload):
            await session.record([_said("tool", RESULT)])
        assert [message.role for message in await session.messages()] == ["user", "assistant", "tool"]


async def test_a_verb_whose_caller_is_gone_before_it_began_never_runs(path: Path) -> None:
    async with backstay.open(path, agent=echo) as app:
        session, *others = [await app.session() for _ in range(1 + CROWD)]
        with nothing_can_be_written(path):
            under_way = [asyncio.create_task(other.rename("in time")) for other in others]
            renaming = asyncio.create_task(session.rename("too late"))
            for _ in range(10):
                await asyncio.sleep(0)
            renaming.cancel()
            await asyncio.gather(renaming, return_exceptions=True)
        await asyncio.gather(*under_way)
        assert {(await other.read()).title for other in others} == {"in time"}
        assert (await session.read()).title is None


async def test_a_turn_is_found_only_in_its_own_session(path: Path) -> None:
    async with backstay.open(path, agent=echo) as app:
        session, other = await app.session(), await app.session()
        turn = await session.send("hello")
        assert (await session.turn(turn.id)).id == turn.id
        with pytest.raises(NotFound):
            await other.turn(turn.id)
