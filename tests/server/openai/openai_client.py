"""The official client, as it is installed, pointed at a server of ours."""

from typing import Any

import openai
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI

from tests.server.running_server import PATIENCE, RunningServer
from tests.server.server_process import ServerProcess

# The types of the client know OpenAI's models and tools; ours differ, and tests send invalid values on purpose.
Ai = Any


def client_of(server: RunningServer | ServerProcess, token: str | None = None) -> Ai:
    """A client without retries, so that a test sees every error."""
    return OpenAI(**_choices(server, token), http_client=DefaultHttpxClient(verify=False))


def async_client_of(server: RunningServer | ServerProcess, token: str | None = None) -> AsyncOpenAI:
    """The same, with an async interface."""
    return AsyncOpenAI(**_choices(server, token), http_client=DefaultAsyncHttpxClient(verify=False))


def _choices(server: RunningServer | ServerProcess, token: str | None) -> dict[str, Any]:
    return {
        "base_url": f"{server.url}/v1",
        "api_key": _token(server, token),
        "max_retries": 0,
        "timeout": PATIENCE,
    }


def _token(server: RunningServer | ServerProcess, token: str | None) -> str:
    if token is not None:
        return token
    return server.token() if isinstance(server, RunningServer) else server.token


def plain(events: list[Any]) -> list[dict[str, Any]]:
    """Events as they came over the wire."""
    return [event.to_dict() for event in events]


def fault(error: openai.APIStatusError) -> dict[str, Any]:
    """The error that the server reported."""
    body = error.response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    told: dict[str, Any] = body["error"]
    return told
