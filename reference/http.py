"""HTTP: every operation of the API."""

from itertools import groupby

from backstay.server.application import OPERATIONS
from backstay.server.http.operation import AnyOperation
from reference.markdown import code, table, whole

INTRODUCTION = """\
`GET /api/openapi.json` describes every operation with all fields; a test checks that the server conforms to it. A
client authenticates with a token (`Authorization: Bearer …`) or with a browser's cookie. `If-Match` takes a revision
(an `ETag`), `Idempotency-Key` a request id. Data of another owner is reported as not found. See [how to
serve](../howto/server.md)."""


def page() -> str:
    """The page."""
    parts = []
    for noun, operations in groupby(sorted(OPERATIONS, key=_noun), key=_noun):
        parts += [f"## {noun}", table(["", "path", "what it does", "headers"], map(_row, operations))]
    return whole("HTTP", INTRODUCTION, *parts)


def _noun(operation: AnyOperation) -> str:
    return operation.noun


def _row(operation: AnyOperation) -> list[str]:
    headers = ["If-Match"] * operation.revision + ["Idempotency-Key"] * operation.request_id
    return [operation.method, code(operation.path), operation.summary, ", ".join(map(code, headers))]
