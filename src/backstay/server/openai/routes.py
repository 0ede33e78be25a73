"""All operations of this wire."""

from backstay.server.openai import completions, conversations, models, responses
from backstay.server.operation import AnyOperation

OPERATIONS: tuple[AnyOperation, ...] = (
    *conversations.OPERATIONS,
    *responses.OPERATIONS,
    *completions.OPERATIONS,
    *models.OPERATIONS,
)
