"""Operation: settings and their sources, tokens, metrics, logs and traces."""

import json
import logging
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from backstay import open_store
from backstay.agents.selection.agent_specs import parse_agent_specs
from backstay.config import Settings, choose
from backstay.errors import ConfigError
from backstay.server.telemetry.logs import JsonLines
from backstay.server.telemetry.metrics import Metrics, forget_levels
from backstay.server.telemetry.tracing import OpenTelemetryTracer
from tests.cli.forked_command import fork_server
from tests.databases import Place
from tests.server.agents import AGENTS, echo
from tests.server.api_calls import accepted, answered, new_session
from tests.server.running_server import RunningServer, run_server
from tests.server.server_process import serve_process, serving

# --- search languages -----------------------------------------------------------------------------------------------


def test_a_server_sets_the_search_languages_of_its_database(tmp_path: Path, empty_database: str) -> None:
    languages = {"BACKSTAY_SEARCH_LANGUAGES": "german, english"}
    with serving(tmp_path, "--db", empty_database, environment=languages), open_store(empty_database) as store:
        assert store.about().search_languages == ("english", "german")


def test_without_the_setting_a_server_keeps_the_search_languages(tmp_path: Path, empty_database: str) -> None:
    with open_store(empty_database) as store:
        store.set_search_languages(["french"])
        with serving(tmp_path, "--db", empty_database):
            assert store.about().search_languages == ("french",)


def test_a_server_on_sqlite_rejects_search_languages(tmp_path: Path) -> None:
    languages = {"BACKSTAY_SEARCH_LANGUAGES": "english"}
    with serve_process(tmp_path, "--db", str(tmp_path / "chat.db"), environment=languages) as process:
        assert process.wait() == 1
    log = (tmp_path / "server.log").read_text()
    assert "a SQLite store does not support search languages such as english" in log
    assert "Remove search_languages" in log


# --- settings -------------------------------------------------------------------------------------------------------


def test_flags_beat_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "backstay.toml"
    file.write_text('port = 1\nhost = "localhost"\nworkers = 2\nallowed_hosts = ["a.example"]\n')
    environment = {"BACKSTAY_PORT": "2", "BACKSTAY_WORKERS": "3", "BACKSTAY_ALLOWED_ORIGINS": "http://b, http://c"}

    chosen = choose({"port": 4, "host": None}, environment, file=file, home=tmp_path)

    settings, sources = chosen.settings, chosen.sources
    assert (settings.port, settings.workers, settings.host) == (4, 3, "localhost")
    assert (settings.allowed_hosts, settings.allowed_origins) == (("a.example",), ("http://b", "http://c"))
    assert (sources["port"], sources["workers"], sources["host"], sources["auth"]) == (
        "flag",
        "environment",
        "file",
        "default",
    )


@pytest.mark.parametrize(
    ("text", "environment", "named"),
    [
        ("prot = 1", {}, "backstay.toml: Object contains unknown field `prot`"),
        ('port = "many"', {}, "backstay.toml: port: "),
        ("port =", {}, "backstay.toml is not TOML: "),
        ("", {"BACKSTAY_PORT": "many"}, "environment: port: "),
        ("", {"BACKSTAY_AUTH": "perhaps"}, "environment: auth: "),
    ],
)
def test_an_invalid_setting_is_named(tmp_path: Path, text: str, environment: dict[str, str], named: str) -> None:
    file = tmp_path / "backstay.toml"
    file.write_text(text)

    with pytest.raises(ConfigError) as refused:
        choose({}, environment, file=file, home=tmp_path)

    assert named in str(refused.value)
    assert refused.value.hint


NUMBERS = [field.name for field in msgspec.structs.fields(Settings) if field.type in (int, float)]


@pytest.mark.parametrize("value", ["-1", "nan", "inf"])
@pytest.mark.parametrize("name", NUMBERS)
def test_an_unusable_number_is_rejected_by_name(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name) as refused:
        choose({}, {f"BACKSTAY_{name.upper()}": value}, home=tmp_path)

    assert refused.value.hint


@pytest.mark.parametrize("name", ["heartbeat_seconds", "requests_per_second", "body_seconds", "workers", "streams"])
def test_zero_is_accepted_only_where_it_has_a_meaning(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        choose({}, {f"BACKSTAY_{name.upper()}": "0"}, home=tmp_path)


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        choose({}, {"BACKSTAY_CONFIG": str(tmp_path / "nothing.toml")}, home=tmp_path)


def run_in(home: Path, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", **more}
    done = fork_server().run(arguments, home, environment, b"")
    return subprocess.CompletedProcess(arguments, done.code, done.out.decode(), done.err.decode())


def test_config_shows_every_setting_and_its_source(tmp_path: Path) -> None:
    shown = json.loads(run_in(tmp_path, "config", "--db", "chat.db", "--json").stdout)

    assert shown["settings"]["db"] == {"value": "chat.db", "from": "flag"}
    assert shown["settings"]["port"] == {"value": 8642, "from": "default"}
    assert "port" in run_in(tmp_path, "config").stdout


@pytest.mark.parametrize("more", [(), ("--json",)])
@pytest.mark.parametrize("url", ["postgresql://me:hunter2@db/chat", "postgresql://db/chat?password=hunter2&port=5433"])
def test_the_settings_are_shown_without_the_secrets_in_them(tmp_path: Path, url: str, more: tuple[str, ...]) -> None:
    shown = run_in(tmp_path, "config", "--db", url, *more, BACKSTAY_AGENT="https://me:hunter2@models/v1#tiny").stdout

    assert "hunter2" not in shown
    assert "db/chat" in shown
    assert "@models/v1#tiny" in shown


def test_tokens_are_given_listed_and_revoked_at_the_command_line(tmp_path: Path, path: Place) -> None:
    with run_server(path, AGENTS) as server:
        secret = run_in(tmp_path, "tokens", "add", "robot", "--owner", "anna", "--db", str(path)).stdout.strip()
        with server.client_with(secret) as robot:
            assert robot.get("/api/me").json()["owner"] == "anna"
            listed = json.loads(
                run_in(tmp_path, "tokens", "list", "--owner", "anna", "--db", str(path), "--json").stdout
            )
            [token] = listed["tokens"]
            assert token["name"] == "robot"

            run_in(tmp_path, "tokens", "revoke", token["id"], "--owner", "anna", "--db", str(path))

            assert robot.get("/api/me").status_code == 401


def test_a_link_made_at_the_command_line_signs_in(tmp_path: Path, path: Place) -> None:
    with run_server(path, AGENTS) as server, server.client_with(None) as browser:
        link = run_in(tmp_path, "link", "--db", str(path)).stdout.strip()

        assert browser.post("/api/login", json={"code": link.partition("#")[2]}).status_code == 204


# --- agents by name -------------------------------------------------------------------------------------------------


def test_agents_are_found_by_module_and_by_address() -> None:
    found = parse_agent_specs(["tests.server.agents:echo", "local=http://localhost:11434/v1#llama"])

    assert found["default"] is echo
    assert "llama" in repr(found["local"])
    assert set(parse_agent_specs([])) == {"default"}


@pytest.mark.parametrize(
    "specs",
    [
        ["nowhere"],
        ["nowhere:agent"],
        ["tests.server.agents:nobody"],
        ["tests.server.agents:PATIENCE"],
        ["http://localhost/v1"],
        ["json:dumps"],
        ["tests.server.agents:echo", "tests.server.agents:echo"],
    ],
)
def test_an_invalid_agent_is_reported_at_once(specs: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_agent_specs(specs)

    assert refused.value.hint


# --- metrics, logs, traces ------------------------------------------------------------------------------------------


def test_metrics_count_requests_turns_and_writes(server: RunningServer, client: httpx2.Client) -> None:
    session = new_session(client)
    answered(client, session, "hello")
    accepted(client, session, "hello", agent="patient")
    accepted(client, session, "later")

    text = client.get("/metrics").text

    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert values['backstay_turns_total{outcome="completed"}'] == "1"
    assert values['backstay_requests_total{operation="submit_turn",status="202"}'] == "3"
    assert (values["backstay_store_turns_running"], values["backstay_store_turns_waiting"]) == ("1", "1")
    assert int(values["backstay_commit_seconds_count"]) > int(values["backstay_checkpoint_seconds_count"]) > 0
    assert values['backstay_commit_seconds_bucket{le="+Inf"}'] == values["backstay_commit_seconds_count"]
    assert "backstay_pool_hits_total" in text
    assert session not in text


def test_counts_of_all_workers_are_summed_including_dead_ones(tmp_path: Path) -> None:
    mine = Metrics(tmp_path)
    mine.turns.add(2, outcome="completed")
    mine.streams.add(3)
    (tmp_path / "1.counts").write_text('{"backstay_turns_total{outcome=\\"completed\\"}": 5}')
    (tmp_path / "1.levels").write_text('{"backstay_streams": 4}')
    mine.save()
    assert 'backstay_turns_total{outcome="completed"} 7\n' in mine.text({})
    assert "backstay_streams 7\n" in mine.text({})

    forget_levels(tmp_path, 1)

    assert 'backstay_turns_total{outcome="completed"} 7\n' in mine.text({})
    assert "backstay_streams 3\n" in mine.text({})


def test_a_worker_that_cannot_save_its_counts_continues_and_shows_its_own(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "counts")
    metrics.turns.add(outcome="completed")

    metrics.save()

    assert 'backstay_turns_total{outcome="completed"} 1\n' in metrics.text({})
    (tmp_path / "counts").mkdir()
    (tmp_path / "counts" / "1.counts").write_text('{"backstay_turns_total{outcome=\\"completed\\"}": 5}')
    metrics.save()
    assert 'backstay_turns_total{outcome="completed"} 6\n' in metrics.text({})


def test_text_that_no_encoding_has_is_escaped_in_the_log() -> None:
    record = logging.makeLogRecord({"msg": "agent failed", "detail": "half a pair: \ud83d"})

    line = json.loads(JsonLines().format(record))

    assert line["detail"] == "half a pair: \\ud83d"


def test_a_line_of_the_log_cannot_be_forged() -> None:
    evil = 'x\n{"event": "forged"}\x1b[2J'
    record = logging.makeLogRecord({"name": "x", "msg": evil, "levelname": "INFO", "session": evil})

    line = JsonLines().format(record)

    assert "\n" not in line
    assert "\x1b" not in line
    parsed: dict[str, Any] = json.loads(line)
    assert (parsed["event"], parsed["session"]) == (evil, evil)


def test_turns_and_requests_are_traced_without_contents(path: Place) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    with run_server(path, AGENTS, tracer=OpenTelemetryTracer(provider)) as server, server.client() as client:
        session = new_session(client)
        turn = answered(client, session, "the secret heron")

    finished = spans.get_finished_spans()
    [told_of] = [span for span in finished if span.name == "invoke_agent default"]
    assert told_of.attributes is not None
    assert told_of.attributes["gen_ai.conversation.id"] == session
    assert told_of.attributes["gen_ai.response.id"] == turn
    assert "POST submit_turn" in [span.name for span in finished]
    assert "heron" not in "".join(span.to_json() for span in finished)
