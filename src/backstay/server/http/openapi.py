"""The OpenAPI document, generated from the declarations that the server serves."""

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from backstay.server.http.api_request import NoInput
from backstay.server.http.docstrings import parse
from backstay.server.http.operation import OCTETS, AnyOperation
from backstay.server.http.problems import MEDIA_TYPE, Problem

_TEMPLATE = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
# A parameter that may contain slashes, as the router spells it.
_PATTERN = re.compile(r"\{(\w+):\w+\}")
_STREAM = "text/event-stream"

# Statuses that any operation may return: malformed or too large head, failed authentication, wrong host or origin,
# invalid parameters, rate limit, store unavailable.
ALWAYS = (400, 401, 403, 421, 422, 429, 431, 500, 503)
WITH_BODY = (408, 413, 415, 422, 507)

# Any: a JSON Schema is arbitrary JSON.
Schema = dict[str, Any]


class ErrorFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The format of the errors of one API: the type of the body, and statuses that this API replaces by others."""

    body: type
    media_type: str
    statuses: dict[int, int] = {}


class DocumentedApi(msgspec.Struct, frozen=True, kw_only=True):
    """The operations of one API, and the format of its errors."""

    operations: tuple[AnyOperation, ...]
    errors: ErrorFormat


PROBLEMS = ErrorFormat(body=Problem, media_type=MEDIA_TYPE)


def document(apis: Sequence[DocumentedApi], pages: Schema | None = None) -> Schema:
    """The document with all operations and the types they use; `pages` are paths that are not operations."""
    schemas, components = _schemas(apis)
    paths: dict[str, Schema] = {}
    for api in apis:
        for operation in api.operations:
            described = _operation(operation, schemas, api.errors)
            paths.setdefault(_PATTERN.sub(r"{\1}", operation.path), {})[operation.method.lower()] = described
    whole: Schema = _with_plain_tuples(_head(paths | (pages or {}), components))
    return whole


def _head(paths: Schema, components: Schema) -> Schema:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Backstay",
            "version": version("backstay"),
            "description": "Durable sessions for AI agents. Errors are application/problem+json with a hint.",
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


def _with_plain_tuples(value: Any) -> Any:  # Any: any JSON
    """Describe a tuple as an array of its length: many generators do not support `prefixItems`, nor `items: false`."""
    if isinstance(value, list):
        return [_with_plain_tuples(one) for one in value]
    if not isinstance(value, dict):
        return value
    plain = {name: _with_plain_tuples(one) for name, one in value.items()}
    kinds = plain.pop("prefixItems", None)
    if kinds is not None:
        different = [kind for place, kind in enumerate(kinds) if kind not in kinds[:place]]
        plain["items"] = different[0] if len(different) == 1 else {"anyOf": different}
    if "enum" in plain and len(plain["enum"]) == 1:
        # A tag: one value is a constant, which generators do not make a named enumeration of.
        plain = {"type": "string", "const": plain.pop("enum")[0]} | plain
    return plain


def _schemas(apis: Sequence[DocumentedApi]) -> tuple[dict[object, Schema], dict[str, Schema]]:
    """The schema of every body, query, frame and response type, and the components they refer to."""
    kinds = {
        kind
        for api in apis
        for operation in api.operations
        for kind in (operation.body, operation.document, operation.query, operation.answer, *operation.frames)
        if kind is not None and kind not in (NoInput, OCTETS, str)
    }
    known = sorted(kinds | {api.errors.body for api in apis}, key=lambda kind: kind.__name__)
    found, components = msgspec.json.schema_components(known, ref_template=_TEMPLATE)
    for component in components.values():
        _describe_fields(component)
    return dict(zip(known, found, strict=True)), components


def _describe_fields(component: Schema) -> None:
    """Move the fields that a docstring explains from the description of the type to the fields."""
    docstring = parse(component.get("description"))
    if not docstring.sections:
        return
    component["description"] = "\n\n".join(docstring.paragraphs)
    for section in docstring.sections:
        for name, text in section.entries.items():
            field = component.get("properties", {}).get(name)
            # Beside a reference no other key is allowed to count.
            if field is not None and "$ref" not in field:
                field.setdefault("description", text)


def _operation(operation: AnyOperation, schemas: dict[object, Schema], errors: ErrorFormat) -> Schema:
    described: Schema = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.noun],
        "parameters": [*_path_parameters(operation), *_query_parameters(operation), *_headers(operation)],
        "responses": _responses(operation, schemas, errors),
    }
    if operation.takes_body:
        described["requestBody"] = _body(operation, schemas)
    if operation.public:
        described["security"] = []
    return described


def _body(operation: AnyOperation, schemas: dict[object, Schema]) -> Schema:
    if operation.body is OCTETS:
        return {"required": True, "content": {"application/octet-stream": {"schema": {}}}}
    schema = {"schema": schemas[operation.document or operation.body]}
    return {"required": True, "content": dict.fromkeys(operation.document_types, schema)}


def _path_parameters(operation: AnyOperation) -> list[Schema]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(operation.path)
    ]


def _query_parameters(operation: AnyOperation) -> list[Schema]:
    if operation.query is NoInput:
        return []
    (_,), described = msgspec.json.schema_components([operation.query], ref_template=_TEMPLATE)
    struct = described[operation.query.__name__]
    required = struct.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _without_null(schema)}
        for name, schema in struct["properties"].items()
    ]


def _without_null(schema: Schema) -> Schema:
    """Remove null from a query parameter's schema: an absent parameter is left out, never null."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    rest = {
        name: value for name, value in schema.items() if name != "anyOf" and not (name == "default" and value is None)
    }
    if "enum" in rest:
        rest["enum"] = [value for value in rest["enum"] if value is not None]
    return rest if not kinds else rest | (kinds[0] if len(kinds) == 1 else {"anyOf": kinds})


def _headers(operation: AnyOperation) -> list[Schema]:
    described = []
    if operation.request_id:
        about = "Identifies one request of the token's owner. A repetition with the same key returns the first result."
        described.append(_header("Idempotency-Key", about, {"type": "string", "minLength": 1, "maxLength": 256}))
    if operation.revision:
        about = "The ETag of the revision that was read. If the session has changed since, the answer is 412."
        described.append(_header("If-Match", about, {"type": "string", "pattern": r'^(\*|"[0-9]{1,18}")$'}))
    if operation.media_type == _STREAM:
        described.append(_header("Last-Event-ID", "The id of the last received event.", {"type": "string"}))
    return described


def _header(name: str, about: str, schema: Schema) -> Schema:
    return {"name": name, "in": "header", "required": False, "description": about, "schema": schema}


def _responses(operation: AnyOperation, schemas: dict[object, Schema], errors: ErrorFormat) -> Schema:
    described = {str(status): _success(operation, status, schemas) for status in (operation.status, *operation.also)}
    failed = {"description": "The error.", "content": {errors.media_type: {"schema": schemas[errors.body]}}}
    for status in sorted({errors.statuses.get(status, status) for status in statuses_of(operation)}):
        described.setdefault(str(status), failed)
    return described


def statuses_of(operation: AnyOperation) -> set[int]:
    """Every error status that this operation may return."""
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
    described: Schema = {} if operation.answer in (OCTETS, str) else schemas[operation.answer]
    content = {operation.media_type: {"schema": described}}
    if operation.frames:
        content[_STREAM] = {"schema": _stream(operation, schemas)}
    return {"description": operation.summary, "content": content}


def _stream(operation: AnyOperation, schemas: dict[object, Schema]) -> Schema:
    """The schema of one server-sent event: its fields are those of the event, and `data` is JSON."""
    frames = [schemas[frame] for frame in operation.frames]
    return frames[0] if len(frames) == 1 else {"oneOf": frames}
