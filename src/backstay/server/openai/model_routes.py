"""Models: the agents of this server, as the OpenAI-compatible API lists them."""

import msgspec

from backstay.server.http.api_request import ApiRequest, ApiResponse, NoInput
from backstay.server.http.operation import AnyOperation, Operation
from backstay.server.openai.parameters import agent_named


class ModelObject(msgspec.Struct, frozen=True, kw_only=True):
    """An agent. Its time of creation is unknown, so `created` is always 0."""

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "backstay"


class Models(msgspec.Struct, frozen=True, kw_only=True):
    """All agents."""

    object: str = "list"
    data: list[ModelObject]


async def list_models(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """List the agents of this server."""
    return ApiResponse(value=Models(data=[ModelObject(id=name) for name in call.service.agents]))


async def read_model(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Return one agent."""
    return ApiResponse(value=ModelObject(id=agent_named(call.service, call.named("model"))))


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/v1/models",
        name="list_models",
        summary="List the agents of this server.",
        run=list_models,
        body=NoInput,
        query=NoInput,
        answer=Models,
    ),
    Operation(
        method="GET",
        path="/v1/models/{model:path}",
        name="read_model",
        summary="Get one of the agents.",
        run=read_model,
        body=NoInput,
        query=NoInput,
        answer=ModelObject,
    ),
)
