"""The OpenAPI document, written from the same declarations that the server serves."""

import re
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from backstay.server.call import Nothing
from backstay.server.operation import OCTETS, AnyOperation
from backstay.server.problems import MEDIA_TYPE, Problem

_TEMPLATE = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{(\w+)\}")

# Why anything may be refused: unknown caller, wrong host or origin, odd parameters, too fast, store away.
ALWAYS = (401, 403, 421, 422, 429, 500, 503)
WITH_BODY = (400, 408, 413, 415, 422, 507)

# Any: a JSON Schema is whatever JSON it is.
Schema = dict[str, Any]


def document(operations: Sequence[AnyOperation]) -> Schema:
    """All operations, and every type they speak of."""
    schemas, components = _schemas(operations)
    paths: dict[str, Schema] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Backstay",
            "version": version("backstay"),
            "description": "Durable sessions for AI agents. Problems are application/problem+json with a hint.",
        },
        "security": [{"token": []}, {"cookie": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "backstay"},
            },
        },
    }


def _schemas(operations: Iterable[AnyOperation]) -> tuple[dict[object, Schema], dict[str, Schema]]:
    """The schema of every type that is sent or received, and what they refer to."""
    kinds = {
        kind
        for operation in operations
        for kind in (operation.body, operation.query, operation.answer)
        if kind not in (None, Nothing, OCTETS, str)
    }
    known = sorted(kinds | {Problem}, key=lambda kind: str(kind.__name__))
    found, components = msgspec.json.schema_components(known, ref_template=_TEMPLATE)
    return dict(zip(known, found, strict=True)), components


def _operation(operation: AnyOperation, schemas: dict[object, Schema]) -> Schema:
    told: Schema = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.noun],
        "parameters": [*_path_parameters(operation), *_query_parameters(operation), *_headers(operation)],
        "responses": _responses(operation, schemas),
    }
    if operation.takes_body:
        told["requestBody"] = _body(operation, schemas)
    if operation.public:
        told["security"] = []
    return told


def _body(operation: AnyOperation, schemas: dict[object, Schema]) -> Schema:
    if operation.body is OCTETS:
        return {"required": True, "content": {"application/octet-stream": {"schema": {}}}}
    return {"required": True, "content": {"application/json": {"schema": schemas[operation.body]}}}


def _path_parameters(operation: AnyOperation) -> list[Schema]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(operation.path)
    ]


def _query_parameters(operation: AnyOperation) -> list[Schema]:
    if operation.query is Nothing:
        return []
    (_,), described = msgspec.json.schema_components([operation.query], ref_template=_TEMPLATE)
    struct = described[operation.query.__name__]
    required = struct.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _without_null(schema)}
        for name, schema in struct["properties"].items()
    ]


def _without_null(schema: Schema) -> Schema:
    """A parameter that is left out is left out; there is no null in a query."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    rest = {
        name: value for name, value in schema.items() if name != "anyOf" and not (name == "default" and value is None)
    }
    if "enum" in rest:
        rest["enum"] = [value for value in rest["enum"] if value is not None]
    return rest if not kinds else rest | (kinds[0] if len(kinds) == 1 else {"anyOf": kinds})


def _headers(operation: AnyOperation) -> list[Schema]:
    told = []
    if operation.request_id:
        about = "A repetition under the same key is the same request."
        told.append(_header("Idempotency-Key", about, {"type": "string", "minLength": 1, "maxLength": 256}))
    if operation.revision:
        about = "The ETag of the revision that was looked at; if it has changed, 412."
        told.append(_header("If-Match", about, {"type": "string", "pattern": r'^(\*|"[0-9]{1,18}")$'}))
    if operation.media_type == "text/event-stream":
        told.append(_header("Last-Event-ID", "The id of the last event that was received.", {"type": "string"}))
    return told


def _header(name: str, about: str, schema: Schema) -> Schema:
    return {"name": name, "in": "header", "required": False, "description": about, "schema": schema}


def _responses(operation: AnyOperation, schemas: dict[object, Schema]) -> Schema:
    told = {str(status): _success(operation, status, schemas) for status in (operation.status, *operation.also)}
    for status in sorted(statuses_of(operation)):
        told.setdefault(
            str(status), {"description": "See `hint`.", "content": {MEDIA_TYPE: {"schema": schemas[Problem]}}}
        )
    return told


def statuses_of(operation: AnyOperation) -> set[int]:
    """Every status with which this operation may be refused."""
    found = {*ALWAYS, *operation.problems}
    if operation.takes_body:
        found |= set(WITH_BODY)
    if _PARAMETER.search(operation.path):
        found.add(404)
    if operation.revision:
        found.add(412)
    if operation.method != "GET":
        found |= {404, 409, 422, 507}
    return found


def _success(operation: AnyOperation, status: int, schemas: dict[object, Schema]) -> Schema:
    if operation.answer is None or status in (204, 304):
        return {"description": operation.summary}
    if operation.answer in (OCTETS, str):
        return {"description": operation.summary, "content": {operation.media_type: {"schema": {}}}}
    return {
        "description": operation.summary,
        "content": {"application/json": {"schema": schemas[operation.answer]}},
    }
