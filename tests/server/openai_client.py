"""The official client, as it is installed, pointed at a server of ours."""

from typing import Any

import openai
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI

from tests.server.running_server import PATIENCE, RunningServer
from tests.server.server_process import ServerProcess

# The client's own types know OpenAI's models and tools; ours are others, and tests send nonsense on purpose.
Ai = Any


def client_of(server: RunningServer | ServerProcess, token: str | None = None) -> Ai:
    """A client that tries nothing twice, so that a test sees every refusal."""
    return OpenAI(**_choices(server, token), http_client=DefaultHttpxClient(verify=False))


def async_client_of(server: RunningServer | ServerProcess, token: str | None = None) -> AsyncOpenAI:
    """The same, for those who await it."""
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
    """What the server said went wrong."""
    body = error.response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    told: dict[str, Any] = body["error"]
    return told
