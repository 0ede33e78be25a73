"""The OpenAI-compatible API of a real `backstay serve`: killed during a response, restarted, several workers."""

from pathlib import Path
from typing import Any

import pytest

from tests.databases import Place, let_leases_lapse
from tests.server.openai.openai_client import client_of, plain
from tests.server.server_process import HERE, agent_options, serving

AGENTS = agent_options(
    "tests.server.agents:echo", "patient=tests.server.agents:patient", "scripted=tests.server.agents:scripted"
)


def test_a_response_whose_server_was_killed_is_resumed_and_ends_truthfully(tmp_path: Path, place: Place) -> None:
    heard: list[Any] = []
    with (
        serving(tmp_path, "--db", str(place), "--token-file", "token", *AGENTS, environment=HERE) as served,
        client_of(served) as ai,
    ):
        conversation = ai.conversations.create(metadata={"topic": "tea"}).id
        stream = ai.responses.create(
            model="patient", input="wait", conversation=conversation, background=True, stream=True
        )
        for event in stream:
            heard.append(event)
            if event.type == "response.output_text.delta":
                break
        response = heard[0].response.id
        served.kill()
        stream.close()
    let_leases_lapse(place, served.pid)

    with (
        serving(tmp_path, "--db", str(place), "--token-file", "token", *AGENTS, environment=HERE) as served,
        client_of(served) as ai,
    ):
        heard += ai.responses.retrieve(response, stream=True, starting_after=heard[-1].sequence_number)

        assert [event.sequence_number for event in heard] == list(range(len(heard)))
        assert heard[-1].type == "response.failed"
        assert plain(heard) == plain(list(ai.responses.retrieve(response, stream=True)))
        ended = ai.responses.retrieve(response)
        assert ended.status == "failed"
        assert ended.error is not None
        assert ended.error.message.startswith("interrupted")
        assert ended.output_text == "listening "
        assert ended.output[0].status == "incomplete"
        assert ai.conversations.retrieve(conversation).metadata == {"topic": "tea"}
        after = ai.responses.create(model="default", input="go on", conversation=conversation)
        assert after.output_text == "go on "


@pytest.mark.parametrize("drop", range(0, 24, 3))
def test_a_stream_dropped_at_a_number_continues_after_a_killed_server(tmp_path: Path, drop: int) -> None:
    asked: dict[str, Any] = {
        "model": "scripted",
        "input": "think of tea\ncalc 6*7\nhello\ncalc 1+1",
        "background": True,
    }
    with serving(tmp_path, "--db", "chat.db", *AGENTS, environment=HERE) as served, client_of(served) as ai:
        whole = list(ai.responses.create(**asked, stream=True))
        response = whole[0].response.id
        with ai.responses.retrieve(response, stream=True) as stream:
            heard = [next(stream) for _ in range(drop + 1)]
        served.kill()

    with serving(tmp_path, "--db", "chat.db", *AGENTS, environment=HERE) as served, client_of(served) as ai:
        heard += ai.responses.retrieve(response, stream=True, starting_after=drop)
        assert plain(heard) == plain(whole)


def test_a_request_whose_answer_was_lost_is_repeated_and_answered_once(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"model": "default", "input": "once", "extra_headers": {"Idempotency-Key": "k"}}
    with serving(tmp_path, "--db", "chat.db", *AGENTS, environment=HERE) as served, client_of(served) as ai:
        first = ai.responses.create(**asked)
        served.kill()
    with serving(tmp_path, "--db", "chat.db", *AGENTS, environment=HERE) as served, client_of(served) as ai:
        assert ai.responses.create(**asked) == first


def test_responses_are_shared_by_all_workers_of_a_server(tmp_path: Path) -> None:
    arguments = ("--db", "chat.db", "--workers", "3", *AGENTS)
    with serving(tmp_path, *arguments, environment=HERE) as served:
        conversation, running = "", []
        for number in range(6):
            # Each client has a connection of its own, and so perhaps another worker.
            with client_of(served) as ai:
                conversation = conversation or ai.conversations.create().id
                asked = ai.responses.create(
                    model="patient", input=f"wait {number}", conversation=conversation, background=True
                )
                running.append(asked.id)
        for response in running:
            with client_of(served) as ai:
                assert ai.responses.cancel(response).status == "cancelled"
            with client_of(served) as ai:
                told = list(ai.responses.retrieve(response, stream=True))
                assert [event.sequence_number for event in told] == list(range(len(told)))
                assert told[-1].response.status == "cancelled"


def test_a_stopped_server_ends_its_streams_and_the_next_completes_the_response(tmp_path: Path) -> None:
    heard: list[Any] = []
    quick = HERE | {"BACKSTAY_GRACE_SECONDS": "0.5"}
    with serving(tmp_path, "--db", "chat.db", *AGENTS, environment=quick) as served, client_of(served) as ai:
        stream = ai.responses.create(model="patient", input="wait", stream=True)
        heard.append(next(stream))
        assert served.terminate() == 0
        heard += stream
    response = heard[0].response.id

    with serving(tmp_path, "--db", "chat.db", *AGENTS, environment=HERE) as served, client_of(served) as ai:
        if heard[-1].type != "response.failed":
            heard += ai.responses.retrieve(response, stream=True, starting_after=heard[-1].sequence_number)
        assert [event.sequence_number for event in heard] == list(range(len(heard)))
        assert heard[-1].response.status == "failed"
        after = ai.responses.create(model="default", input="go on", previous_response_id=response)
        assert after.output_text == "go on "
