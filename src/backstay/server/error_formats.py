"""The error format of each API of this server."""

from backstay.server.http.error_responses import ErrorResponses
from backstay.server.openai import openai_errors

ERROR_RESPONSES = ErrorResponses({openai_errors.PATHS: openai_errors.encode_error})
