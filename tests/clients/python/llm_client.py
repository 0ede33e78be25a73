"""`llm`: prompts, streams, conversations and tools, through its own settings for servers like OpenAI's."""

import os
import tempfile
from pathlib import Path

folder = Path(tempfile.mkdtemp())
os.environ["LLM_USER_PATH"] = str(folder)
(folder / "extra-openai-models.yaml").write_text(
    f"""
- model_id: ours
  model_name: scripted
  api_base: {os.environ["OPENAI_BASE_URL"]}
  api_key_name: openai
  supports_tools: true
- model_id: directed
  model_name: directed
  api_base: {os.environ["OPENAI_BASE_URL"]}
  api_key_name: openai
- model_id: echo
  model_name: default
  api_key_name: openai
  api_base: {os.environ["OPENAI_BASE_URL"]}
"""
)

import llm  # noqa: E402  # it reads its settings from the folder above


def weather(city: str) -> str:
    """How the weather is."""
    return f"sunny in {city}"


key = os.environ["OPENAI_API_KEY"]
echo = llm.get_model("echo")
assert echo.prompt("one two", key=key).text().strip() == "one two"
assert echo.prompt("one two", key=key, stream=False).text().strip() == "one two"
given = {"stop": "zebra", "seed": 7, "presence_penalty": 0.5, "frequency_penalty": 0.25}
directed = llm.get_model("directed").prompt("x", key=key, **given).text()
assert directed == "stop zebra seed 7 presence 0.5 frequency 0.25", directed
talk = llm.get_model("ours").conversation()
assert "42" in talk.prompt("calc 6*7", key=key).text()
assert "hello" in talk.prompt("hello", key=key).text()
answer = llm.get_model("ours").chain('tool weather {"city": "Rome"}', tools=[weather], key=key).text()
assert "sunny in Rome" in answer, answer
