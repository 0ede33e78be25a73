"""LangChain: both APIs, tools, and the second turn that puts our own output back as input."""

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def weather(city: str) -> str:
    """How the weather is."""
    return f"sunny in {city}"


def talk(model: ChatOpenAI) -> None:
    asked: list = [HumanMessage("think about tea\ncalc 6*7")]
    first = model.invoke(asked)
    second = model.invoke([*asked, first, HumanMessage("hello")])
    assert isinstance(second, AIMessage)
    assert "hello" in second.text, second
    streamed = None
    for chunk in model.stream("calc 2+3"):
        streamed = chunk if streamed is None else streamed + chunk
    assert "5" in str(streamed.content), streamed
    third = model.invoke([HumanMessage("calc 2+3"), streamed, HumanMessage("hello")])
    assert "hello" in third.text


def use_tools(model: ChatOpenAI) -> None:
    bound = model.bind_tools([weather])
    asked: list = [HumanMessage('tool weather {"city": "Rome"}')]
    called = bound.invoke(asked)
    (call,) = called.tool_calls
    assert call["args"] == {"city": "Rome"}
    answer = bound.invoke([*asked, called, ToolMessage("sunny", tool_call_id=call["id"])])
    assert "sunny" in answer.text
    agent = create_agent(model, [weather])
    done = agent.invoke({"messages": asked})
    assert "sunny in Rome" in done["messages"][-1].text
    again = agent.invoke({"messages": [*done["messages"], HumanMessage("hello")]})
    assert "hello" in again["messages"][-1].text


for choices in (
    {"use_responses_api": False},
    {"use_responses_api": True},
    {"use_responses_api": True, "output_version": "responses/v1"},
    {"use_responses_api": True, "output_version": "v1"},
    {"use_responses_api": True, "use_previous_response_id": True},
    {"use_responses_api": True, "store": False, "include": ["reasoning.encrypted_content"]},
):
    chat = ChatOpenAI(model="scripted", max_retries=0, **choices)
    talk(chat)
    use_tools(chat)

given = {"stop": ["zebra"], "seed": 7, "presence_penalty": 0.5, "frequency_penalty": 0.25}
directed = ChatOpenAI(model="directed", max_retries=0, use_responses_api=False, **given).invoke("x")
assert directed.text == "stop zebra seed 7 presence 0.5 frequency 0.25"
