"""The official client: both APIs, streamed and not, and what we sent put back as input."""

from openai import NotFoundError, OpenAI

TOOL = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
BIG = 123456789012345678901234567890


def responses(ai: OpenAI) -> None:
    first = ai.responses.create(model="scripted", input="think about tea\ncalc 6*7")
    assert first._request_id
    again = ai.responses.create(
        model="scripted", input=[{"role": "user", "content": "hi"}, *first.output, {"role": "user", "content": "usage"}]
    )
    assert again.status == "completed"
    with ai.responses.stream(model="default", input="one two") as stream:
        assert [event.type for event in stream][-1] == "response.completed"
        assert stream.get_final_response().output_text.strip() == "one two"
    asked = ai.responses.create(
        model="directed", input=f'call {{"city": "Rome", "id": {BIG}}}', tools=[{"type": "function", **TOOL}]
    )
    (call,) = [item for item in asked.output if item.type == "function_call"]
    assert str(BIG) in call.arguments
    told = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    answered = ai.responses.create(model="scripted", previous_response_id=asked.id, input=[told])
    assert "sunny" in answered.output_text


def completions(ai: OpenAI) -> None:
    kept = ai.models.list().data
    assert "scripted" in [model.id for model in kept]
    said = ai.chat.completions.create(
        model="default", messages=[{"role": "user", "content": "hello"}], store=False, user="anna"
    )
    assert said.choices[0].message.content.strip() == "hello"
    stream = ai.chat.completions.create(
        model="default",
        messages=[{"role": "user", "content": "one two"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices).strip() == "one two"
    counted = ai.chat.completions.create(model="thoughtful", messages=[{"role": "user", "content": "x"}]).usage
    assert counted.completion_tokens_details.reasoning_tokens == 5
    tools = [{"type": "function", "function": TOOL}]
    asked: list = [{"role": "user", "content": 'tool weather {"city": "Rome"}'}]
    called = ai.chat.completions.create(model="scripted", messages=asked, tools=tools).choices[0].message
    asked += [called, {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "sunny"}]
    assert (
        "sunny" in ai.chat.completions.create(model="scripted", messages=asked, tools=tools).choices[0].message.content
    )


def compaction(ai: OpenAI) -> None:
    long = "Tea is picked, withered, rolled and dried before anybody drinks it. " * 8
    history: list = [{"role": "user" if n % 2 == 0 else "assistant", "content": long} for n in range(4)]
    compacted = ai.responses.compact(model="default", input=history)
    assert [item.type for item in compacted.output] == ["compaction", "message", "message"]
    output = [item.model_dump(exclude_unset=True, warnings=False) for item in compacted.output]
    answer = ai.responses.create(model="default", input=[*output, {"role": "user", "content": "and then?"}])
    assert answer.output_text.strip() == "and then?"


def errors(ai: OpenAI) -> None:
    for ask in (
        lambda: ai.responses.create(model="nobody", input="x"),
        lambda: ai.chat.completions.create(model="nobody", messages=[{"role": "user", "content": "x"}]),
    ):
        try:
            ask()
        except NotFoundError as error:
            assert error.code == "model_not_found", error.code
            assert error.request_id
        else:
            raise AssertionError("nobody answered")


with OpenAI(max_retries=0) as client:
    responses(client)
    completions(client)
    compaction(client)
    errors(client)
