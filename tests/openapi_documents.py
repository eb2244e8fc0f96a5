"""OpenAPI documents for tests, and the operations that are read from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jsonschema_rs

from contextos.adapters.openapi.document import OpenApiDocument
from contextos.adapters.openapi.operations import Operations, ReadOperation, RefusedOperation

OK: dict[str, Any] = {"200": {"description": "ok", "content": {"application/json": {"schema": {"type": "object"}}}}}


def document(
    paths: Mapping[str, Any],
    schemas: Mapping[str, Any] | None = None,
    *,
    version: str = "3.1.0",
    security: Mapping[str, Any] | None = None,
    server: str = "https://api.example/v1",
) -> bytes:
    """The bytes of a document with these paths and components."""
    components = {"schemas": schemas or {}, "securitySchemes": security or {}}
    info = {"title": "Test", "version": "1.0"}
    root = {"openapi": version, "info": info, "servers": [{"url": server}], "paths": paths, "components": components}
    return json.dumps(root).encode()


def body_of(schema: Any, *, required: bool = True) -> dict[str, Any]:
    """A `requestBody` in JSON."""
    return {"required": required, "content": {"application/json": {"schema": schema}}}


def post(schema: Any, **more: Any) -> dict[str, Any]:
    """The paths of one operation `send` with this body."""
    return {"/send": {"post": {"operationId": "send", "requestBody": body_of(schema), "responses": OK, **more}}}


def read_one(raw: bytes) -> ReadOperation | RefusedOperation:
    """The only operation of a document."""
    (one,) = Operations(OpenApiDocument(raw)).read()
    return one


def usable(raw: bytes) -> ReadOperation:
    one = read_one(raw)
    assert isinstance(one, ReadOperation), one
    return one


def accepts(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether a schema accepts a value, as the registry asks."""
    return jsonschema_rs.Draft202012Validator(
        dict(schema), pattern_options=jsonschema_rs.RegexOptions(), validate_formats=True
    ).is_valid(value)
