"""Reads the JSON body of a request within limits of size and time, and parses it into a model.

A request is refused if its media type is not JSON, if its body has more than `MAX_BODY_BYTES` bytes, or if its body
does not arrive within `MAX_BODY_S` seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from fastapi import Depends, Request
from starlette.requests import ClientDisconnect

from contextos.contracts.encoding.codec import MAX_BYTES, loads, parse
from contextos.contracts.model import Model
from contextos.errors import InvalidEnvelope, Problem
from contextos.server.edge import is_json
from contextos.server.problems import HttpProblem
from contextos.service.views import JSON

ModelT = TypeVar("ModelT", bound=Model)

MAX_BODY_BYTES: Final = MAX_BYTES
MAX_BODY_S: Final = 30


async def read_object(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body of a request.

    Raises:
        HttpProblem: the media type is not JSON (415), the body is too large (413) or too slow (408), or the client
            disconnects (400).
        MalformedJson: the body is not I-JSON within the limits of `contracts.encoding.codec`.
        InvalidEnvelope: the JSON value is not an object.
    """
    if not is_json(request.headers.get("content-type", "")):
        detail = f"the body has to be `{JSON}` in UTF-8; state it in `Content-Type`"
        raise HttpProblem(415, "unsupported_media_type", detail, {"Accept": JSON})
    value = loads(await read_bytes(request), max_bytes=MAX_BODY_BYTES)
    if not isinstance(value, dict):
        raise InvalidEnvelope(Problem("", "no_object", "the body is not a JSON object", "send one object"))
    return value


async def read_bytes(request: Request, most_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Return the body of a request.

    Raises:
        HttpProblem: it has more than `most_bytes` (413), is too slow (408), or the client disconnects (400).
    """
    try:
        async with asyncio.timeout(MAX_BODY_S):
            return await _bytes_of(request, most_bytes)
    except TimeoutError:
        detail = f"the body did not arrive within {MAX_BODY_S} s; send it again"
        raise HttpProblem(408, "request_timeout", detail, {"Connection": "close"}) from None
    except ClientDisconnect:
        raise HttpProblem(400, "disconnected", "the client went away before its body was read") from None


async def _bytes_of(request: Request, most_bytes: int) -> bytes:
    too_large = HttpProblem(
        413, "too_large", f"the body has more than {most_bytes} bytes; send less", {"Connection": "close"}
    )
    if int(request.headers.get("content-length", "0")) > most_bytes:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            raise too_large
    return bytes(body)


def json_of(model: type[ModelT]) -> Any:
    """Return the dependency of a route whose body is a `model`."""

    async def read(request: Request) -> ModelT:
        return parse(model, await read_object(request))

    dependency: Callable[[Request], Awaitable[ModelT]] = read
    return Depends(dependency)


def body_of(model: type[Model]) -> dict[str, Any]:
    """Return the OpenAPI description of the body of a route, for the argument `openapi_extra`."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {JSON: {"schema": schema}}}}
