"""Publishes the OpenAPI document, the JSON Schemas of the envelopes, and the issuer of tokens for this API. No token is
needed.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from contextos.contracts.schemas import file_name, published
from contextos.server.callers import RESOURCE_PATH
from contextos.server.problems import not_found

published_routes: Final = APIRouter(include_in_schema=False)


@published_routes.get("/v1/openapi.json")
async def get_openapi_document(request: Request) -> JSONResponse:
    """Return the OpenAPI document of this API."""
    return JSONResponse(request.app.openapi())


@published_routes.get(RESOURCE_PATH + "{path:path}")
async def get_resource_metadata(request: Request) -> JSONResponse:
    """Return who issues tokens for this API (RFC 9728)."""
    url, document = request.app.state.resource_metadata
    if request.scope["path"] != unquote(urlsplit(url).path):
        raise not_found()
    return JSONResponse(document)


@published_routes.get("/schemas/{name}")
async def get_published_schema(name: str) -> JSONResponse:
    """Return a published JSON Schema by its file name, such as `decision-record.v1.schema.json`."""
    schema = _schemas().get(name)
    if schema is None:
        raise not_found()
    return JSONResponse(schema, media_type="application/schema+json")


@cache
def _schemas() -> dict[str, dict[str, Any]]:
    return {file_name(name): schema for name, schema in published().items()}
