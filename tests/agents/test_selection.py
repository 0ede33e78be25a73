"""Agent selection without a named agent: found on real sockets, explained without a secret."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from backstay.agents import AnthropicAgent, GeminiAgent, OpenAICompatible
from backstay.agents.selection.agent_specs import parse_agent_specs
from backstay.agents.selection.discovery import LocalServer, acp_command, find_acp_commands, find_servers
from backstay.agents.selection.providers import key_for
from backstay.agents.selection.selection import AgentSelection, decide
from backstay.config import Settings, choose
from backstay.errors import ConfigError

PATIENCE = 120.0
SECRET = "sk-nobody-may-see-this"

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


def answers(body: bytes, status: int = 200, **headers: str) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status} So", f"content-length: {len(body)}", "connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    return answer


def lists(*models: str) -> Answer:
    return answers(msgspec.json.encode({"object": "list", "data": [{"id": model} for model in models]}))


@asynccontextmanager
async def server_that(answer: Answer) -> AsyncIterator[str]:
    """A server on a free port that answers every request like this; its address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await answer(writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


def unused_address() -> str:
    """The address of a port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


async def found_at(answer: Answer) -> LocalServer:
    async with server_that(answer) as url:
        [found] = await find_servers([f"it={url}"], PATIENCE)
    return found


# --- discovery ------------------------------------------------------------------------------------------------------


def test_a_local_server_is_found_with_its_models() -> None:
    found = asyncio.run(found_at(lists("llama3.2:latest", "qwen3")))

    assert (found.finding, found.models) == ("models", ("llama3.2:latest", "qwen3"))


@pytest.mark.parametrize(
    "answer",
    [
        answers(b"<html>It works!</html>"),
        answers(b"{}"),
        answers(b'{"data": "many"}'),
        answers(b'{"data": [{"name": "x"}]}'),
        answers(b"[" * 100_000),
        answers(b'{"data": [{"id": "m"}]}', status=404),
        answers(b"", status=302, location="http://127.0.0.1:9/v1/models"),
        answers(b'{"data": [{"id": "' + b"m" * (1 << 20) + b'"}]}'),
    ],
    ids=["html", "empty", "no list", "no ids", "nested", "404", "redirect", "huge"],
)
def test_a_foreign_web_server_is_not_an_agent(answer: Answer) -> None:
    found = asyncio.run(found_at(answer))

    assert (found.finding, found.models) == ("something else", ())


@pytest.mark.parametrize("models", [(), ("nomic-embed-text",), ("evil\x1b[2J",), ("",)])
def test_a_server_without_a_usable_model_is_not_an_agent(models: tuple[str, ...]) -> None:
    assert asyncio.run(found_at(lists(*models))).finding == "no models"


def test_no_server_is_found_where_none_listens() -> None:
    [found] = asyncio.run(find_servers([f"it={unused_address()}"], PATIENCE))

    assert found.finding == "nothing"


def test_a_server_that_never_ends_its_answer_times_out() -> None:
    async def silent(writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async def trickling(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 So\r\ncontent-length: 1000000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    async def look() -> tuple[LocalServer, ...]:
        async with server_that(silent) as one, server_that(trickling) as two:
            # The whole search has a time limit, whatever the servers do.
            async with asyncio.timeout(PATIENCE):
                return await find_servers([f"one={one}", f"two={two}"], 0.5)

    one, two = asyncio.run(look())

    assert [one.finding, two.finding] == ["too slow", "too slow"]


@pytest.mark.parametrize("place", ["ollama", "=http://127.0.0.1:1/v1", "ollama=ftp://127.0.0.1/"])
def test_an_invalid_provider_location_is_rejected(place: str) -> None:
    with pytest.raises(ConfigError):
        asyncio.run(find_servers([place], 1.0))


def test_an_installed_agent_is_found_and_not_run(tmp_path: Path) -> None:
    program = tmp_path / "goose"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o700)

    [offer] = find_acp_commands(str(tmp_path))

    assert (offer.command, offer.path) == (("goose", "acp"), str(program))
    assert not (tmp_path / "ran").exists()
    assert find_acp_commands(None) == ()


# --- the order of choices -------------------------------------------------------------------------------------------

LOCAL = LocalServer(name="Ollama", base_url="http://127.0.0.1:11434/v1", finding="models", models=("llama", "qwen"))
SILENT = LocalServer(name="vLLM", base_url="http://127.0.0.1:8000/v1", finding="something else")


def chosen_rung(selection: AgentSelection) -> str:
    [choice] = [choice for choice in selection.choices if choice.chosen]
    return choice.name


def test_the_first_choice_that_applies_is_selected() -> None:
    key = {"OPENAI_API_KEY": SECRET}

    assert chosen_rung(decide(["my:bot"], "flag", key, [LOCAL], [])) == "named"
    assert chosen_rung(decide([], "default", key, [LOCAL], [])) == "key"
    assert chosen_rung(decide([], "default", {}, [SILENT, LOCAL], [])) == "local"
    assert chosen_rung(decide([], "default", {}, [SILENT], [])) == "scripted"


def test_every_choice_is_explained() -> None:
    key = {"OPENAI_API_KEY": SECRET, "OPENAI_MODEL": "gpt-x"}

    assert decide(["my:bot"], "flag", key, [], []).why == "my:bot answers: chosen by --agent."
    assert decide([], "default", key, [], []).why == "gpt-x of OpenAI answers: OPENAI_API_KEY is set."
    assert decide([], "default", {}, [LOCAL], []).why == f"llama answers: Ollama serves it at {LOCAL.base_url}."
    assert decide([], "default", {}, [], []).why.startswith("The scripted agent answers: ")


def test_a_selection_is_a_valid_agent_specification() -> None:
    environment = {"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": "https://models.example/v1/", "OPENAI_MODEL": "m"}

    assert decide([], "default", environment, [], []).agent == ("https://models.example/v1#m",)
    assert decide([], "default", {}, [LOCAL], []).agent == ("http://127.0.0.1:11434/v1#llama",)
    assert decide([], "default", {}, [], []).agent == ("scripted",)


def test_a_key_for_another_base_url_needs_the_name_of_a_model() -> None:
    selection = decide(
        [], "default", {"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": "https://models.example/v1"}, [], []
    )

    assert chosen_rung(selection) == "scripted"
    assert "OPENAI_MODEL" in selection.choices[1].found[0]


def test_an_empty_key_counts_as_none() -> None:
    assert chosen_rung(decide([], "default", {"OPENAI_API_KEY": ""}, [], [])) == "scripted"


def test_an_installed_acp_agent_is_offered_and_not_selected(tmp_path: Path) -> None:
    program = tmp_path / "goose"
    program.touch(0o700)

    selection = decide([], "default", {}, [], find_acp_commands(str(tmp_path)))

    assert chosen_rung(selection) == "scripted"
    assert selection.choices[3].found == ("Goose: goose acp  (--agent acp:goose)",)
    assert selection.why.endswith("Goose is installed: use it with --agent acp:goose")


def test_an_acp_agent_answers_when_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "goose").touch(0o700)
    (tmp_path / "claude-code-acp").touch(0o700)

    assert decide(["acp:goose"], "flag", {}, [], []).why == "acp:goose answers: chosen by --agent."
    assert acp_command("acp:goose", str(tmp_path)) == ("goose", "acp")
    assert acp_command("acp:claude", str(tmp_path)) == ("claude-code-acp",)  # by its older name, if there is no other
    assert acp_command("acp:my-agent --model 'a b'", None) == ("my-agent", "--model", "a b")
    with pytest.raises(ConfigError, match="Gemini CLI is not installed"):
        acp_command("acp:gemini", str(tmp_path))


def test_arguments_of_an_acp_command_line_are_not_shown() -> None:
    selection = decide([f"mine=acp:/opt/agent --key {SECRET}"], "flag", {}, [], [])

    assert selection.why == "mine=acp:/opt/agent … answers: chosen by --agent."
    assert SECRET not in str(selection.choices)


def test_no_secret_is_shown() -> None:
    names = ("OPENAI", "OPENROUTER", "MISTRAL", "DEEPSEEK", "ANTHROPIC", "GEMINI", "BACKSTAY")
    environment = {f"{name}_API_KEY": SECRET for name in names}
    environment["MISTRAL_BASE_URL"] = f"https://me:{SECRET}@models.example/v1"

    for named in ([], [f"https://me:{SECRET}@models.example/v1#m"]):
        selection = decide(named, "flag", environment, [], [])
        assert SECRET not in selection.why
        assert SECRET not in str(selection.choices)


def test_a_providers_key_is_shown_to_that_provider_alone() -> None:
    environment = {"OPENAI_API_KEY": SECRET}

    assert key_for("https://api.openai.com/v1/", environment) == SECRET
    assert key_for("http://127.0.0.1:11434/v1", environment) is None
    assert key_for("http://127.0.0.1:11434/v1", {"BACKSTAY_API_KEY": "ours"}) == "ours"


def test_the_provider_locations_are_a_setting(tmp_path: Path) -> None:
    nowhere = choose({}, {"BACKSTAY_PROBE": ""}, home=tmp_path).settings
    two = choose({}, {"BACKSTAY_PROBE": "a=http://127.0.0.1:1/v1, b=http://127.0.0.1:2/v1"}, home=tmp_path).settings

    assert nowhere.probe == ()
    assert two.probe == ("a=http://127.0.0.1:1/v1", "b=http://127.0.0.1:2/v1")
    assert len(Settings().probe) == 4


@pytest.mark.parametrize(
    ("prefix", "agent", "kind"),
    [
        ("ANTHROPIC", "anthropic+https://api.anthropic.com#m", AnthropicAgent),
        ("GEMINI", "gemini+https://generativelanguage.googleapis.com/v1beta#m", GeminiAgent),
        ("MISTRAL", "https://api.mistral.ai/v1#m", OpenAICompatible),
    ],
)
def test_a_providers_key_selects_the_agent_for_its_api(
    prefix: str, agent: str, kind: type[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {f"{prefix}_API_KEY": SECRET, f"{prefix}_MODEL": "m"}
    monkeypatch.delenv("BACKSTAY_API_KEY", raising=False)
    monkeypatch.setenv(f"{prefix}_API_KEY", SECRET)

    assert decide([], "default", environment, [], []).agent == (agent,)
    assert type(parse_agent_specs([agent])["default"]) is kind
    assert type(parse_agent_specs([f"mine={agent}"])["mine"]) is kind


def test_a_key_is_not_sent_to_another_api_at_the_same_url() -> None:
    environment = {"ANTHROPIC_API_KEY": SECRET}

    assert key_for("https://api.anthropic.com", environment, "anthropic+") == SECRET
    assert key_for("https://api.anthropic.com", environment) is None
