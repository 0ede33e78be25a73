"""instructor: values of a type, by tools, by JSON and by the Responses API."""

import instructor
from openai import OpenAI
from pydantic import BaseModel


class Person(BaseModel):
    name: str
    age: int


ask = {"role": "user", "content": 'tool Person {"name": "Anna", "age": 42}'}
by_tool = instructor.from_openai(OpenAI(), mode=instructor.Mode.TOOLS)
assert by_tool.chat.completions.create(model="scripted", messages=[ask], response_model=Person).age == 42
by_json = instructor.from_openai(OpenAI(), mode=instructor.Mode.JSON)
said = {"role": "user", "content": '{"name": "Anna", "age": 42}'}
found = by_json.chat.completions.create(model="directed", messages=[said], response_model=Person)
assert (found.name, found.age) == ("Anna", 42)
by_response = instructor.from_openai(OpenAI(), mode=instructor.Mode.RESPONSES_TOOLS)
called = 'call {"name": "Anna", "age": 42}'
assert by_response.responses.create(model="directed", input=called, response_model=Person).name == "Anna"
