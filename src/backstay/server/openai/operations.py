"""All operations of the OpenAI-compatible API."""

from backstay.server.http.operation import AnyOperation
from backstay.server.openai import chat_completion_routes, conversation_routes, model_routes, response_routes

OPERATIONS: tuple[AnyOperation, ...] = (
    *conversation_routes.OPERATIONS,
    *response_routes.OPERATIONS,
    *chat_completion_routes.OPERATIONS,
    *model_routes.OPERATIONS,
)
