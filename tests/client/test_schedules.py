"""The same facts about schedules hold for the handles of an app and for those of a client, on both engines."""

import pytest

from backstay import Address
from backstay.errors import InvalidPayload, NotFound, NothingToDo, RequestMismatch, SessionEnded, UnknownAgent
from backstay.model.ids import ScheduleId
from backstay.model.turn import Completed
from tests.client.conftest import Opened

CHAT = Address.chat("telegram", "dm", chat="42")


async def test_a_schedule_is_created_listed_paused_run_and_deleted(opened: Opened) -> None:
    async with opened as app:
        made = await app.create_schedule(
            "weekday 9:00", CHAT, "tea?", zone="Europe/Zurich", if_busy="steer", if_missed="ask", request_id="r1"
        )

        assert (made.when, made.to, made.owner) == ("weekday 09:00 Europe/Zurich", CHAT.spelling, app.owner)
        assert (made.if_busy, made.if_missed, made.text) == ("steer", "ask", "tea?")
        assert (
            await app.create_schedule(
                "weekday 9:00", CHAT, "tea?", zone="Europe/Zurich", if_busy="steer", if_missed="ask", request_id="r1"
            )
            == made
        )
        assert await app.schedules() == (made,)
        assert (await app.pause_schedule(made.id)).state == "paused"
        assert (await app.resume_schedule(made.id)).state == "active"
        run = await app.run_schedule(made.id, request_id="now")
        assert await app.run_schedule(made.id, request_id="now") == run
        assert run.last.turn is not None
        assert await (await app.turn(run.last.turn)).outcome() == Completed()
        assert await app.schedule(made.id) == run
        log = await app.schedule_log(made.id)
        assert [entry.step for entry in log] == ["fired", "resumed", "paused", "created"]
        assert await app.schedule_log(made.id, limit=1) == log[:1]
        with pytest.raises(NothingToDo):
            await app.skip_schedule(made.id)
        assert (await app.delete_schedule(made.id)).id == made.id
        assert await app.schedules() == ()


async def test_a_schedule_without_a_zone_has_one_of_the_machine_or_the_server(opened: Opened) -> None:
    async with opened as app:
        session = await app.session()
        made = await app.create_schedule("day 9:00", session.id, "tea?")
        assert made.to == session.id
        assert len(made.when.split()) == 3


async def test_invalid_schedules_are_refused_in_the_same_way(opened: Opened) -> None:
    async with opened as app:
        ended = await app.session()
        await ended.end()
        with pytest.raises(InvalidPayload, match="is not a time of a schedule"):
            await app.create_schedule("often", CHAT, "tea?")
        with pytest.raises(InvalidPayload, match="is not a time zone"):
            await app.create_schedule("day 9:00", CHAT, "tea?", zone="Nowhere")
        with pytest.raises(InvalidPayload, match="is in the past"):
            await app.create_schedule("2020-01-01 9:00", CHAT, "tea?")
        with pytest.raises(SessionEnded):
            await app.create_schedule("day 9:00", ended.id, "tea?")
        with pytest.raises(UnknownAgent):
            await app.create_schedule("day 9:00", CHAT, "tea?", agent="nobody")
        await app.create_schedule("day 9:00", CHAT, "tea?", request_id="r1")
        with pytest.raises(RequestMismatch):
            await app.create_schedule("day 9:00", CHAT, "coffee?", request_id="r1")
        for unknown in (ScheduleId("sch_1"), ScheduleId("sch_01kb0000000e0080000000000r"), ScheduleId("..")):
            with pytest.raises(NotFound):
                await app.schedule(unknown)
            with pytest.raises(NotFound):
                await app.delete_schedule(unknown)
