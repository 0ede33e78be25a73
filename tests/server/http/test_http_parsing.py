"""Requests that two parsers could read differently are rejected before they are routed."""

import json
from collections.abc import Iterator
from pathlib import Path

import h11
import pytest

from backstay.server.http.strict_head import strict_connection
from tests.server.api_calls import raw_answer
from tests.server.running_server import RunningServer, run_server

ASK = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    """A server; its database does not matter here."""
    with run_server(tmp_path / "chat.db") as server:
        yield server


def statuses(server: RunningServer, *pieces: bytes) -> list[bytes]:
    """The statuses of all answers to what is sent on one connection, which the server must close."""
    heard = raw_answer(server.port, *pieces)
    return [part[:3] for part in heard.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize("size", [16_400, 30_000, 60_000])
def test_a_head_that_is_too_large_is_refused_in_one_packet_and_in_many(server: RunningServer, size: int) -> None:
    head = ASK + b"X: " + b"x" * size + b"\r\n\r\n"

    assert statuses(server, head) == [b"431"]
    assert statuses(server, head[:100], head[100:8_000], head[8_000:]) == [b"431"]


def test_a_head_just_under_the_limit_is_read(server: RunningServer) -> None:
    rest = server.settings.header_bytes - len(ASK) - len(b"X: \r\n\r\n")

    assert statuses(server, ASK + b"X: " + b"x" * rest + b"\r\n\r\n") == [b"200"]
    assert statuses(server, ASK + b"X: " + b"x" * (rest + 1) + b"\r\n\r\n") == [b"431"]


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\nHost: localhost\n\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\n",
        b"GET /healthz HTTP/1.1\nHost: localhost\r\n\r\n",
        b"\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        ASK + b"X: a\rY: b\r\n\r\n",
    ],
)
def test_a_line_that_ends_in_anything_but_crlf_is_refused(server: RunningServer, head: bytes) -> None:
    assert statuses(server, head) == [b"400"]
    assert statuses(server, head[:25], head[25:]) == [b"400"]


@pytest.mark.parametrize("fold", [b"\r\n ", b"\r\n\t"])
def test_a_folded_header_is_refused(server: RunningServer, fold: bytes) -> None:
    assert statuses(server, ASK + b"X: a" + fold + b"b\r\n\r\n") == [b"400"]


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        b"transfer-encoding: CHUNKED\r\ncontent-LENGTH: 0\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    ],
)
def test_a_body_with_two_lengths_is_rejected(server: RunningServer, headers: bytes) -> None:
    asked = b"POST /api/login HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n"
    hidden = b"0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

    assert statuses(server, asked + hidden) == [b"400"]


def test_trailers_are_parsed_as_strictly_as_headers(server: RunningServer) -> None:
    asked = b"POST /api/login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"

    assert b"200" not in statuses(server, asked + b"0\r\n\n" + ASK + b"\r\n")
    assert b"200" not in statuses(server, asked + b"0\r\nX: y\n\n" + ASK + b"\r\n")
    assert statuses(server, asked + b"0\r\n\r\n" + ASK + b"\r\n")[-1] == b"200"


def test_requests_one_after_another_are_each_answered(server: RunningServer) -> None:
    assert statuses(server, (ASK + b"\r\n") * 3) == [b"200"] * 3


def test_a_head_is_refused_as_every_request_is(server: RunningServer) -> None:
    head, _, body = raw_answer(server.port, ASK + b"X: a\r\n b\r\n\r\n").partition(b"\r\n\r\n")

    assert b"content-type: application/problem+json" in head.lower()
    assert (json.loads(body)["status"], json.loads(body)["code"]) == (400, "malformed_head")
    assert "CRLF" in json.loads(body)["hint"]


def test_the_head_of_a_response_is_sent_with_the_first_bytes_of_its_body() -> None:
    connection = strict_connection(16_384)
    connection.receive_data(ASK + b"\r\n")
    connection.next_event()

    assert connection.send(h11.Response(status_code=200, headers=[("content-length", "2")])) == b""
    first = connection.send(h11.Data(data=b"ok"))

    assert first.startswith(b"HTTP/1.1 200")
    assert first.endswith(b"\r\n\r\nok")
    assert connection.send(h11.EndOfMessage()) == b""


def test_an_event_stream_sends_its_head_before_its_first_event() -> None:
    connection = strict_connection(16_384)
    connection.receive_data(ASK + b"\r\n")
    connection.next_event()
    connection.send(h11.Response(status_code=200, headers=[("transfer-encoding", "chunked")]))

    head = connection.send(h11.Data(data=b""))

    assert head.startswith(b"HTTP/1.1 200")
    assert head.endswith(b"\r\n\r\n")
