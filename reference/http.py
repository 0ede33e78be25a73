"""HTTP: every operation of the API."""

from itertools import groupby

from backstay.server.app import OPERATIONS
from backstay.server.operation import AnyOperation
from reference.markdown import code, table, whole

INTRODUCTION = """\
`GET /api/openapi.json` describes all of this with every field; a test holds the server to it. Who asks shows a token
(`Authorization: Bearer …`) or a browser's cookie. `If-Match` takes a revision (an `ETag`), `Idempotency-Key` a request
id. What is foreign is not found. See [how to serve](../howto/server.md)."""


def page() -> str:
    """The page."""
    parts = []
    for noun, operations in groupby(sorted(OPERATIONS, key=_noun), key=_noun):
        parts += [f"## {noun}", table(["", "path", "what it does", "hears"], map(_row, operations))]
    return whole("HTTP", INTRODUCTION, *parts)


def _noun(operation: AnyOperation) -> str:
    return operation.noun


def _row(operation: AnyOperation) -> list[str]:
    hears = ["If-Match"] * operation.revision + ["Idempotency-Key"] * operation.request_id
    return [operation.method, code(operation.path), operation.summary, ", ".join(map(code, hears))]
