"""The same facts hold for the handles of an app and for those of a client, on both engines."""

import io

import pytest

from backstay import Address, NewMessage, Text
from backstay.errors import (
    BackstayError,
    Conflict,
    InvalidPayload,
    NotFound,
    NothingToDo,
    RequestMismatch,
    RevisionMismatch,
    SessionBusy,
    SessionEnded,
    TooLarge,
    UnknownAgent,
)
from backstay.model.session import SessionFilter, SessionPatch, Ttl
from backstay.model.turn import Cancelled, Completed
from backstay.testing import finish_turn
from tests.client.conftest import Opened
from tests.runtime.controlled_agents import roles_and_texts

CHAT = Address.chat("telegram", "dm", chat="42")


async def test_a_message_is_answered_and_its_events_end_with_the_turn(opened: Opened) -> None:
    async with opened as app:
        session = await app.session(CHAT)
        turn = await session.send("hello", request_id="telegram/42/1")
        events = [event async for event in turn.events()]

        assert await turn.outcome() == Completed()
        assert [event.number for event in events] == sorted({event.number for event in events})
        assert {event.turn for event in events} == {turn.id}
        assert events[0].number == turn.first_event
        assert events[-1].body.__struct_config__.tag == "turn_ended"
        again = [event async for event in turn.events(after=events[1].last)]
        assert again == events[2:]
        assert [event async for event in turn.events(after=events[-1].last)] == []


async def test_dictionaries_of_openais_api_are_sent_edited_and_steered(opened: Opened) -> None:
    async with opened as app:
        session = await app.session(agent="patient")
        file = await session.upload(b"tea", name="tea.txt")
        running = await session.send({"role": "user", "content": "wait"})
        waiting = await app.send(session.id, [{"type": "text", "text": "look"}, "here", file], agent="patient")
        steered = await session.steer([{"role": "user", "content": [{"type": "text", "text": "faster"}]}])

        assert (await waiting.read()).input == (Text("look"), Text("here"), file)
        assert (await waiting.edit({"role": "user", "content": "changed"})).input == (Text("changed"),)
        assert (await steered.read()).input == (Text("faster"),)
        with pytest.raises(InvalidPayload, match="content has the role 'assistant'"):
            await session.send({"role": "assistant", "content": "I never said so"})
        await running.cancel()


async def test_a_test_runs_a_turn_here_and_on_a_server(opened: Opened) -> None:
    async with opened as app:
        session = await app.session(CHAT)
        run = await finish_turn(session, await session.send("hello"))

        assert (run.outcome, run.messages[0].text) == (Completed(), "hello")
        assert run.text == (await session.messages())[-1].text


async def test_a_repeated_request_is_the_first_turn_wherever_the_address_leads(opened: Opened) -> None:
    async with opened as app:
        first = await app.send(CHAT, "hello", request_id="telegram/42/1")
        await first.outcome()
        other = await app.session()
        await other.point(CHAT)
        again = await app.send(CHAT, "hello", request_id="telegram/42/1")

        assert (again.id, again.session, again.repeated) == (first.id, first.session, True)
        with pytest.raises(RequestMismatch):
            await app.send(CHAT, "something else", request_id="telegram/42/1")


async def test_an_unknown_option_of_a_message_is_an_error_and_sends_nothing(opened: Opened) -> None:
    async with opened as app:
        session = await app.session()
        with pytest.raises(TypeError, match="agnt"):
            await session.send("hello", agnt="default")  # type: ignore[call-arg]  # that is the fact
        with pytest.raises(TypeError, match="agnt"):
            await app.send(session.id, "hello", agnt="default")  # type: ignore[call-arg]

        assert await session.messages() == ()
        await (await session.send("hello", ttl=Ttl(idle=60))).outcome()
        assert (await session.read()).expires_at is not None


async def test_a_message_to_no_session_begins_one_and_a_rejected_message_leaves_none(opened: Opened) -> None:
    async with opened as app:
        first = await app.send("new", "hello", request_id="new/1")
        again = await app.send("new", "hello", request_id="new/1")
        other = await app.send("new", "hello")
        with pytest.raises(UnknownAgent):
            await app.send("new", "hello", agent="nobody")

        assert (again.id, again.session, again.repeated) == (first.id, first.session, True)
        assert {session.id for session in (await app.sessions()).sessions} == {first.session, other.session}
        assert {await first.outcome(), await other.outcome()} == {Completed()}


async def test_the_queue_is_read_edited_reordered_and_withdrawn(opened: Opened) -> None:
    async with opened as app:
        session = await app.session(agent="patient")
        running = await session.send("wait")
        one, two = [await session.send(text) for text in ("one", "two")]
        assert (running.accepted_state, one.accepted_state) == ("running", "waiting")

        await two.edit("two, changed")
        order = await session.reorder([two.id, one.id])
        assert [turn.id for turn in order] == [turn.id for turn in await session.waiting()] == [two.id, one.id]
        assert order[0].input == (Text("two, changed"),)
        assert isinstance((await one.withdraw()).outcome, Cancelled)
        await two.withdraw()
        assert isinstance(await running.cancel(), Cancelled)
        with pytest.raises(NothingToDo):
            await one.withdraw()


async def test_history_is_undone_redone_forked_and_edited(opened: Opened) -> None:
    async with opened as app:
        session = await app.session(agent="default")
        await session.record([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
        recorded = await session.record([NewMessage(role="user", parts=(Text("c"),))])
        assert (await session.undo()).length == 2
        assert (await session.redo()).length == 3
        assert len(recorded.messages) == 1
        forked = await session.fork()
        assert roles_and_texts(await forked.messages()) == [("user", "a"), ("assistant", "b"), ("user", "c")]
        edited = await forked.edit((await forked.messages())[0].id, "d", agent="default")
        assert await edited.outcome() == Completed()
        assert [text for role, text in roles_and_texts(await forked.messages()) if role == "user"] == ["d"]
        assert [window.reason for window in await forked.lineage()] == ["fork", "edit"]


async def test_sessions_are_organised_found_and_searched(opened: Opened) -> None:
    async with opened as app:
        session, other = await app.session(CHAT), await app.session()
        assert (await app.resolve(CHAT)).how == "resumed"
        assert (await app.at(CHAT)).id == session.id
        await session.rename("Plans")
        await session.pin()
        await session.tag(add=["work"])
        filed = await session.update(SessionPatch(archived=False, metadata={"ticket": "7"}))
        assert (filed.title, filed.pinned, filed.tags, filed.metadata) == ("Plans", True, ("work",), {"ticket": "7"})
        assert await session.addresses() == (CHAT.spelling,)
        assert (await session.save_draft("half")).draft == "half"
        assert (await session.mark_read(1)).read_to == 1

        first = await app.sessions(limit=1)
        rest = await app.sessions(after=first.next)
        assert {one.id for one in (*first.sessions, *rest.sessions)} == {session.id, other.id}
        assert [one.id for one in (await app.sessions(SessionFilter(pinned=True))).sessions] == [session.id]
        assert [one.id for one in await app.beginning_with(session.id[:28])] == [session.id]
        await session.record([{"role": "user", "content": "a needle"}])
        assert [hit.session for hit in (await app.search("needle", filter=SessionFilter(tag="work"))).hits] == [
            session.id
        ]
        assert (await app.search("needle", filter=SessionFilter(tag="play"))).hits == ()


async def test_files_and_exports_keep_their_bytes(opened: Opened) -> None:
    async with opened as app:
        session, content = await app.session(), bytes(range(256)) * 4_000
        attachment = await app.upload(io.BytesIO(content), name="a.bin")
        assert await session.download(attachment) == content
        with pytest.raises(TooLarge):
            await session.download(attachment, limit=len(content) - 1)
        await session.record([NewMessage(role="user", parts=(attachment,))])

        file = io.BytesIO()
        file.write(b"before")
        size = await session.export_to(file)
        assert file.getvalue()[:6] == b"before"
        assert size == len(file.getvalue()) - 6
        export = await session.export()
        assert export.session.id == session.id
        file.seek(6)
        imported = await app.import_session(file, new_ids=True)
        copy = await app.session(imported.session.id)
        assert [message.parts for message in await copy.messages()] == [(attachment,)]


async def test_messages_are_read_whole_or_from_the_end(opened: Opened) -> None:
    async with opened as app:
        session = await app.session()
        for start in (0, 550):
            numbers = range(start, start + 550)
            await session.record([NewMessage(role="user", parts=(Text(str(number)),)) for number in numbers])
        texts = [message.text for message in await session.messages()]
        assert texts == [str(number) for number in range(1_100)]
        assert [message.text for message in await session.messages(last=1_050)] == texts[-1_050:]
        assert await session.messages(last=0) == ()


ERRORS: dict[str, tuple[type[BackstayError], str]] = {
    "no session": (NotFound, "app.session('ses_01kb0000000000000000000000')"),
    "a session that was ended": (SessionEnded, "ended.send('x')"),
    "an older revision": (RevisionMismatch, "session.undo(expect_revision=9_999)"),
    "nothing to undo": (NothingToDo, "session.undo()"),
    "an unknown agent": (UnknownAgent, "session.send('x', agent='nobody')"),
    "a busy session": (SessionBusy, "busy.send('x', if_busy='reject')"),
    "a title that is too long": (TooLarge, "session.rename('x' * 100_000)"),
    "a wrong order": (Conflict, "session.reorder([turn.id])"),
    "a wrong last": (InvalidPayload, "session.messages(last=-1)"),
    "an id that is a path": (NotFound, "app.session('../../healthz')"),
}


async def test_an_error_has_the_same_class_and_advice(opened: Opened) -> None:
    async with opened as app:
        session, ended, busy = await app.session(), await app.session(), await app.session(agent="patient")
        await ended.end()
        turn = await busy.send("wait")
        names = {"app": app, "session": session, "ended": ended, "busy": busy, "turn": turn}
        found: dict[str, BackstayError] = {}
        for title, (kind, statement) in ERRORS.items():
            with pytest.raises(kind) as raised:
                await eval(statement, names)
            found[title] = raised.value
        await turn.cancel()
    assert {title: type(error) for title, error in found.items()} == {
        title: kind for title, (kind, _) in ERRORS.items()
    }
    assert all(error.hint for error in found.values())


async def test_all_sessions_are_followed_from_a_position(opened: Opened) -> None:
    async with opened as app:
        one, two = await app.session(), await app.session()
        seen = []
        await one.record([{"role": "user", "content": "a"}])
        async for event in app.follow(0):
            seen.append(event)
            if event.event.session == one.id and event.event.body.__struct_config__.tag == "turn_recorded":
                await two.record([{"role": "user", "content": "b"}])
            if event.event.session == two.id and event.event.body.__struct_config__.tag == "turn_recorded":
                break
        assert [event.position for event in seen] == sorted({event.position for event in seen})


async def test_a_followed_session_ends_with_its_deletion(opened: Opened) -> None:
    async with opened as app:
        session = await app.session()
        await session.record([{"role": "user", "content": "a"}])
        kinds = []
        async for event in session.follow():
            kinds.append(event.body.__struct_config__.tag)
            if kinds[-1] == "turn_recorded":
                await session.delete()
        assert kinds[-1] == "session_deleted"
