"""The OpenAI-compatible agent with a provider that is busy, broken or silent, or sends nonsense."""

import json
import logging
from typing import Any

import pytest

from backstay.agents.provider.transport.retry_policy import ProviderBackoff
from backstay.errors import (
    AgentError,
    AgentFailed,
    AgentTimedOut,
    BackstayError,
    ContextOverflow,
    InputRefused,
    KeyRefused,
    ModelUnknown,
)
from backstay.model.content import Text, Usage
from tests.agents.provider.fake_provider import (
    DONE,
    Play,
    Reply,
    answers,
    breaks_after,
    calls,
    chunk,
    event,
    finish,
    hangs_up,
    refuses,
    says,
    says_nothing,
    stalls_after,
    tally,
    wants,
    words,
)
from tests.agents.provider.provider_turn import KEY, TurnResult, ask

QUICK: dict[str, Any] = {"read_timeout": 1.5}
ROLE = chunk({"role": "assistant", "content": ""})


def openai_error(message: str, code: str | None = None, kind: str | None = None) -> dict[str, object]:
    return {"error": {"message": message, "code": code, "type": kind, "param": None}}


def failure(result: TurnResult) -> BackstayError:
    assert result.error is not None
    return result.error


# Retries.


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(refuses(429), id="429"),
        pytest.param(refuses(500), id="500"),
        pytest.param(refuses(502, "<html>bad gateway</html>"), id="502"),
        pytest.param(refuses(503, openai_error("overloaded")), id="503"),
        pytest.param(refuses(529), id="529"),
        pytest.param(refuses(408), id="408"),
        pytest.param(hangs_up, id="hangs up"),
        pytest.param(breaks_after(), id="breaks off after the head"),
        pytest.param(breaks_after(ROLE), id="breaks off before the first word"),
        pytest.param(says(ROLE), id="ends before the first word"),
        pytest.param(says(event({"error": {"code": 502, "message": "upstream"}})), id="error inside the stream"),
        pytest.param(says(event({"error": "overloaded"})), id="error as text inside the stream"),
    ],
)
def test_a_passing_fault_before_the_first_word_is_tried_again(fault: Play) -> None:
    result = ask(fault, fault, answers("Here."))

    assert (result.bodies, result.error) == ([Text("Here.")], None)
    assert len(result.requests) == 3
    assert result.requests[0].body == result.requests[2].body


@pytest.mark.parametrize("silent", [says_nothing, stalls_after(ROLE)], ids=["before the head", "after the head"])
def test_silence_before_the_first_word_is_tried_again(silent: Play) -> None:
    result = ask(silent, answers("Here."), **QUICK)

    assert (result.bodies, result.error) == ([Text("Here.")], None)


def test_waits_grow_and_end() -> None:
    result = ask(*[refuses(503)] * 6, backoff=ProviderBackoff(retries=5, base=1.0, cap=8.0))

    assert result.waits == [0.5, 1.0, 2.0, 4.0, 4.0]
    assert len(result.requests) == 6
    assert isinstance(result.error, AgentFailed)
    assert "503, 6 times in a row" in str(result.error)


def test_retries_can_be_switched_off() -> None:
    assert len(ask(refuses(503), backoff=ProviderBackoff(retries=0)).requests) == 1


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry_after": "7"}, 7.25),
        ({"retry_after": "1.5"}, 1.75),
        ({"retry_after_ms": "200", "retry_after": "1"}, 0.45),
        ({"retry_after": "Fri, 15 Jan 2027 08:00:09 GMT", "date": "Fri, 15 Jan 2027 08:00:00 GMT"}, 9.25),
        ({"retry_after": "Fri, 15 Jan 2027 08:00:00 GMT", "date": "Fri, 15 Jan 2027 08:00:09 GMT"}, 0.25),
        ({"retry_after": "Fri, 15 Jan 2027 08:00:09 GMT"}, 0.25),
        ({"retry_after": "soon"}, 0.25),
        ({"retry_after": "-5"}, 0.25),
        ({"retry_after": "nan"}, 0.25),
    ],
)
def test_a_provider_that_asks_for_a_wait_is_given_it(headers: dict[str, str], wait: float) -> None:
    result = ask(refuses(429, **headers), answers("Here."))

    assert result.text == "Here."
    assert result.waits == pytest.approx([wait])


def test_a_provider_that_asks_for_an_hour_is_not_waited_for() -> None:
    result = ask(refuses(429, openai_error("come back later"), retry_after="3600"))

    assert result.waits == []
    assert "come back later" in str(failure(result))


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(breaks_after(ROLE, words("Once upon")), id="breaks off"),
        pytest.param(breaks_after(words("Once upon"), words(" a time")[:20]), id="breaks off inside a chunk"),
        pytest.param(says(words("Once upon")), id="ends in good order, unfinished"),
        pytest.param(says(words("Once upon"), words(" a time")[:20]), id="ends inside a chunk"),
        pytest.param(breaks_after(words("Once upon"), wants(0, "a", "add", '{"x"')), id="breaks off inside a call"),
        pytest.param(says(words("Once upon"), event({"error": {"code": 503, "message": "no"}})), id="error"),
    ],
)
def test_an_answer_that_breaks_off_fails_keeps_its_text_and_is_not_retried(fault: Play) -> None:
    result = ask(fault, answers("never asked"))

    assert result.text == "Once upon"
    assert isinstance(result.error, AgentFailed)
    assert "in the middle of the answer" in str(result.error)
    assert len(result.requests) == 1


@pytest.mark.parametrize("begun", [wants(0, "a", "add", '{"x"'), chunk({"reasoning": "hm"})], ids=["call", "thought"])
def test_a_call_or_a_thought_counts_as_begun(begun: bytes) -> None:
    result = ask(breaks_after(begun), answers("never asked"))

    assert isinstance(result.error, AgentFailed)
    assert len(result.requests) == 1


def test_silence_in_the_middle_of_an_answer_is_a_time_out() -> None:
    result = ask(stalls_after(words("Once upon")), **QUICK)

    assert result.text == "Once upon"
    assert isinstance(result.error, AgentTimedOut)
    assert "sent nothing for 1.5 s, in the middle of the answer" in str(result.error)


def test_silence_that_lasts_is_a_time_out() -> None:
    result = ask(says_nothing, says_nothing, backoff=ProviderBackoff(retries=1), **QUICK)

    assert isinstance(result.error, AgentTimedOut)
    assert len(result.requests) == 2


def test_a_provider_that_is_not_there_is_tried_again_and_then_named() -> None:
    result = ask(base_url="http://127.0.0.1:1/v1", backoff=ProviderBackoff(retries=2))

    assert isinstance(result.error, AgentFailed)
    assert "the provider of tiny cannot be reached" in str(result.error)
    assert len(result.waits) == 2


@pytest.mark.parametrize(
    "answer",
    [None, refuses(500), refuses(404), refuses(401), refuses(301), hangs_up, breaks_after(ROLE)],
    ids=["nobody", "500", "404", "401", "301", "hangs up", "breaks off"],
)
def test_the_address_of_a_provider_is_in_the_log_and_not_in_errors(
    caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    """The client gets the error; the address of a model is for the operator."""
    caplog.set_level("INFO", "backstay.agents.provider.openai_compatible")
    there: dict[str, Any] = {"base_url": "http://127.0.0.1:1/v1"} if answer is None else {}
    result = ask(*([] if answer is None else [answer]), backoff=ProviderBackoff(retries=0), **there)

    assert result.error is not None
    assert "127.0.0.1" not in str(result.error)
    assert "127.0.0.1" in [getattr(one, "address", "").partition(":")[0] for one in caplog.records]


def test_a_later_step_is_tried_again_too() -> None:
    def noon() -> str:
        return "noon"

    result = ask(calls(wants(0, "a", "noon", "{}")), refuses(500), answers("Noon."), tools=[noon])

    assert (result.text, result.error) == ("Noon.", None)


# Permanent errors.


@pytest.mark.parametrize(
    ("fault", "kind", "words_"),
    [
        (refuses(401, openai_error("Incorrect API key provided: sk-the***789")), KeyRefused, "does not accept"),
        (refuses(403, openai_error("Your country is not supported")), KeyRefused, "country"),
        (refuses(404, openai_error("The model `tiny` does not exist", "model_not_found")), ModelUnknown, "'tiny'"),
        (refuses(404, "<html>not found</html>"), ModelUnknown, "base_url"),
        (refuses(400, openai_error("too much", "context_length_exceeded")), ContextOverflow, "too much"),
        (refuses(400, openai_error("This model's maximum context length is 8 tokens")), ContextOverflow, "8 tokens"),
        (refuses(400, openai_error("prompt is too long: 9 tokens")), ContextOverflow, "9 tokens"),
        (
            refuses(400, openai_error("exceeds the available context size", kind="exceed_context_size_error")),
            ContextOverflow,
            "exceeds",
        ),
        (refuses(500, openai_error("input exceeds the context window")), ContextOverflow, "window"),
        (refuses(413), ContextOverflow, "413"),
        (says(event(openai_error("context_length_exceeded"))), ContextOverflow, "context"),
        (refuses(429, openai_error("You exceeded your current quota", "insufficient_quota")), AgentFailed, "billing"),
        (refuses(400, openai_error("temperature must be a number")), InputRefused, "temperature"),
        (refuses(422, {"detail": [{"loc": ["body", "stop"], "msg": "bad"}]}), InputRefused, "stop"),
        (refuses(400, {"message": "plain"}), InputRefused, "plain"),
        (refuses(400, "plain words\n of two lines"), InputRefused, "plain words of two lines"),
        (refuses(301, location="http://elsewhere/v1"), AgentFailed, "301"),
        (refuses(204), AgentFailed, "204"),
    ],
)
def test_a_rejected_request_fails_with_a_hint_and_is_not_retried(
    fault: Play, kind: type[AgentError], words_: str
) -> None:
    result = ask(fault)

    assert type(result.error) is kind
    assert words_ in str(result.error)
    assert result.error.hint
    assert (result.bodies, result.waits, len(result.requests)) == ([], [], 1)


def test_a_long_refusal_is_quoted_in_part() -> None:
    assert len(str(failure(ask(refuses(400, "no " * 100_000))))) < 600


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 429, 500])
def test_the_key_is_in_no_error_and_no_log(status: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    result = ask(*[refuses(status, openai_error(f"the key {KEY} is bad"))] * 2, backoff=ProviderBackoff(retries=1))

    error: BaseException | None = result.error
    assert error is not None
    while error is not None:
        assert KEY not in f"{error} {error!r} {error.args}"
        error = error.__cause__ or error.__context__
    assert caplog.records
    assert KEY not in caplog.text


# Lies.


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(b"data: {not json}\n\n", id="no JSON"),
        pytest.param(b"data: [1, 2]\n\n", id="a list"),
        pytest.param(b'data: {"choices": "many"}\n\n', id="choices that are text"),
        pytest.param(b'data: {"choices": [{"delta": {"content": 5}}]}\n\n', id="content that is a number"),
        pytest.param(b'data: {"choices": [{"delta": {"content": "\xff"}}]}\n\n', id="no UTF-8"),
        pytest.param(b'data: {"choices": [{"delta": {"content": "\\ud83d"}}]}\n\n', id="half a character"),
        pytest.param(b'data: {"error": ' + b"[" * 5000 + b"]" * 5000 + b"}\n\n", id="a deep hole"),
    ],
)
def test_an_invalid_chunk_fails_the_turn_and_keeps_the_text_before_it(lie: bytes) -> None:
    result = ask(says(words("so far"), lie, words("never"), finish(), DONE))

    assert result.text == "so far"
    assert isinstance(result.error, AgentFailed)
    assert "cannot be read" in str(result.error)


def test_a_web_page_instead_of_a_stream_fails_with_a_hint() -> None:
    result = ask(says(b"<html>\n\n<p>Welcome!</p>\n\n</html>", kind="text/html"))

    assert isinstance(result.error, AgentFailed)
    assert "text/html" in str(result.error)
    assert "base_url" in str(result.error)


def test_a_complete_answer_instead_of_a_stream_fails_with_the_reason() -> None:
    whole = {"choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]}

    assert "not with a stream" in str(failure(ask(says(json.dumps(whole).encode(), kind="application/json"))))


def test_a_stream_with_the_wrong_name_is_a_stream_all_the_same() -> None:
    for kind in ("text/plain", "application/json", "text/event-stream; charset=latin-1"):
        assert ask(says(words("naïve"), finish(), DONE, kind=kind)).text == "naïve"


def test_data_after_the_end_is_ignored() -> None:
    result = ask(says(words("The end."), finish(), DONE, words(" Or is it?"), b"data: {broken\n\n"))

    assert (result.text, result.error) == ("The end.", None)


def test_a_connection_that_stays_open_after_the_end_does_not_delay_the_turn() -> None:
    result = ask(stalls_after(words("The end."), finish(), DONE))

    assert (result.text, result.error) == ("The end.", None)


def test_a_stream_without_an_end_marker_completes_if_the_model_had_finished() -> None:
    assert ask(says(words("The end."), finish())).error is None
    assert ask(says(words("The end."), DONE)).error is None


@pytest.mark.parametrize(
    "nothing",
    [
        pytest.param(event({"choices": []}), id="no choices"),
        pytest.param(event({}), id="an empty object"),
        pytest.param(event({"choices": None}), id="null"),
        pytest.param(event({"choices": [{}]}), id="an empty choice"),
        pytest.param(event({"choices": [{"index": 1, "delta": {"content": "other"}}]}), id="another choice"),
        pytest.param(tally(prompt_tokens=3), id="only usage"),
    ],
)
def test_a_stream_that_holds_no_answer_fails(nothing: bytes) -> None:
    result = ask(says(nothing, nothing, DONE))

    assert isinstance(result.error, AgentFailed)
    assert "empty answer" in str(result.error)


def test_nulls_and_empty_chunks_are_ignored() -> None:
    empty = chunk({"content": None, "tool_calls": None, "reasoning": None, "role": None})

    result = ask(says(event({"choices": []}), empty, words("a"), empty, words("b"), finish(), tally(), DONE))

    assert result.text == "ab"


def test_invalid_numbers_in_usage_are_not_reported() -> None:
    result = ask(says(words("a"), finish(), tally(prompt_tokens=-5, completion_tokens=None), DONE))

    assert result.error is None


def test_more_tokens_than_can_be_counted_are_reported_as_the_most() -> None:
    result = ask(says(words("a"), finish(), tally(prompt_tokens=1 << 70, completion_tokens=1), DONE))

    assert Usage(input_tokens=(1 << 63) - 1, output_tokens=1, model="tiny-1") in result.bodies


def test_comments_and_other_fields_of_the_stream_are_passed_over() -> None:
    result = ask(
        says(b": keep-alive\n\n", b"event: message\nid: 7\nretry: 10\n", words("hi"), b":\n\n", finish(), DONE)
    )

    assert (result.text, result.error) == ("hi", None)


def test_endless_arguments_are_refused_before_they_fill_the_memory() -> None:
    async def play(reply: Reply) -> None:
        await reply.stream()
        await reply.send(wants(0, "c1", "look", '{"at": "'))
        while True:
            await reply.send(wants(0, None, None, "x" * 65536))

    assert "characters of arguments" in str(failure(ask(play)))


def test_more_calls_than_a_model_could_mean_are_refused_and_none_is_run() -> None:
    ran: list[int] = []

    def look(at: int) -> None:
        ran.append(at)

    result = ask(calls(*(wants(n, f"c{n}", "look", f'{{"at": {n}}}') for n in range(65))), tools=[look])

    assert "more than 64 tool calls" in str(failure(result))
    assert ran == []


def test_an_endless_line_is_refused_before_it_fills_the_memory() -> None:
    async def play(reply: Reply) -> None:
        await reply.stream()
        await reply.send(b"data: ")
        while True:
            await reply.send(b"x" * 65536)

    result = ask(play)

    assert isinstance(result.error, AgentFailed)
    assert "at once" in str(result.error)


def test_text_is_complete_wherever_the_stream_is_split() -> None:
    text = "naïve 😀 日本\u2028語\u0085\x0b"
    stream = words(text) + finish() + DONE

    for size in (1, 2, 3, 7):
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert ask(says(*pieces)).text == text
