"""Models: the agents that are served here, under the name that this wire has for what answers."""

import msgspec

from backstay.server.call import Answer, Call, Nothing
from backstay.server.openai.asking import agent_named
from backstay.server.operation import AnyOperation, Operation


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """An agent. When it was made, nobody knows."""

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "backstay"


class Models(msgspec.Struct, frozen=True, kw_only=True):
    """All of them."""

    object: str = "list"
    data: list[Model]


async def list_models(call: Call[Nothing, Nothing]) -> Answer:
    """The agents that can be asked."""
    return Answer(value=Models(data=[Model(id=name) for name in call.service.agents]))


async def read_model(call: Call[Nothing, Nothing]) -> Answer:
    """One of them."""
    return Answer(value=Model(id=agent_named(call.service, call.named("model"))))


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/v1/models",
        name="list_models",
        summary="The agents that can be asked.",
        run=list_models,
        body=Nothing,
        query=Nothing,
        answer=Models,
    ),
    Operation(
        method="GET",
        path="/v1/models/{model:path}",
        name="read_model",
        summary="One of the agents.",
        run=read_model,
        body=Nothing,
        query=Nothing,
        answer=Model,
    ),
)
