"""All operations of the OpenAI-compatible API."""

from backstay.server.http.openapi import DocumentedApi, ErrorFormat
from backstay.server.http.operation import AnyOperation
from backstay.server.openai import (
    chat_completion_routes,
    compaction_routes,
    conversation_routes,
    model_routes,
    openai_errors,
    response_routes,
)

OPERATIONS: tuple[AnyOperation, ...] = (
    *conversation_routes.OPERATIONS,
    *compaction_routes.OPERATIONS,
    *response_routes.OPERATIONS,
    *chat_completion_routes.OPERATIONS,
    *model_routes.OPERATIONS,
)

# For the OpenAPI document.
API = DocumentedApi(
    operations=OPERATIONS,
    errors=ErrorFormat(
        body=openai_errors.ErrorBody, media_type="application/json", statuses=openai_errors.DOCUMENTED_STATUSES
    ),
)
