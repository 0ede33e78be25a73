"""LiteLLM: completions and responses, plain, streamed and with tools."""

import os

import litellm

PLACE = {"api_base": os.environ["OPENAI_BASE_URL"], "api_key": os.environ["OPENAI_API_KEY"]}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]

asked: list = [{"role": "user", "content": "hello"}]
given = {"stop": ["zebra"], "seed": 7, "presence_penalty": 0.5, "frequency_penalty": 0.25}
said = litellm.completion("openai/directed", asked, **PLACE, **given)
assert said.choices[0].message.content == "stop zebra seed 7 presence 0.5 frequency 0.25"
pieces = litellm.completion("openai/default", asked, stream=True, **PLACE)
assert "".join(piece.choices[0].delta.content or "" for piece in pieces).strip() == "hello"

question: list = [{"role": "user", "content": 'tool weather {"city": "Rome"}'}]
called = litellm.completion("openai/scripted", question, tools=TOOLS, **PLACE).choices[0].message
told = {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "sunny"}
answered = litellm.completion("openai/scripted", [*question, called, told], tools=TOOLS, **PLACE)
assert "sunny" in answered.choices[0].message.content

first = litellm.responses(model="openai/scripted", input="think about tea\ncalc 6*7", **PLACE)
output = [item.model_dump(exclude_none=True) if hasattr(item, "model_dump") else item for item in first.output]
again = litellm.responses(
    model="openai/scripted",
    input=[{"role": "user", "content": "x"}, *output, {"role": "user", "content": "usage"}],
    **PLACE,
)
assert again.status == "completed"
followed = litellm.responses(model="openai/scripted", input="hello", previous_response_id=first.id, **PLACE)
assert followed.status == "completed"
