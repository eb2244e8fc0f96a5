"""Makes the OpenAPI 3.1 document of the API: from the routes (by FastAPI), the models of bodies that the server parses
itself, and the problem document of every error.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from contextos import __version__
from contextos.contracts.encoding.display_escape import displayed
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.facts import nearest_name
from contextos.errors import InvalidInput, Problem
from contextos.server.control.groups import GOVERNED_BODIES
from contextos.server.cookies import CSRF_HEADER, SESSION_COOKIE
from contextos.server.login.passkeys import NewPasskey
from contextos.server.operate.groups import OPERATE_BODIES
from contextos.server.operations import operation_bodies
from contextos.server.routes.approvals import AnswerDraft, SignedAnswer
from contextos.server.routes.sessions import CallDraft, SessionEnd, SessionOpening
from contextos.server.shared.forms import ID_PATTERN
from contextos.service.views import PROBLEM_JSON, ProblemDocument

API_PREFIX: Final = "/v1"
"""The beginning of the address of every route of this version."""
BEARER: Final = "bearer"
SESSION_SCHEME: Final = "session"
CSRF: Final = "csrf"
PARSED_BODIES: Final[tuple[type[BaseModel], ...]] = (
    InvokeRequest,
    AnswerDraft,
    SignedAnswer,
    SessionOpening,
    CallDraft,
    SessionEnd,
    NewPasskey,
    ProblemDocument,
    *operation_bodies(),
    *GOVERNED_BODIES,
    *OPERATE_BODIES,
)
"""The models of bodies and errors, which FastAPI does not see in the signatures of routes."""
FILLED_IN: Final = frozenset({"request_id", "tenant_id", "user", "trace"})
"""The members that the body of a request may leave out, because headers or the token state them."""
PROBLEM: Final[dict[int | str, dict[str, Any]]] = {
    "default": {
        "description": "The request was refused, or could not be answered.",
        "content": {PROBLEM_JSON: {"schema": {"$ref": f"#/components/schemas/{ProblemDocument.__name__}"}}},
    }
}
"""The description of every error answer, on every route."""

BEYOND_SCHEMA: Final = (
    "What no schema here says. A body is I-JSON (RFC 7493): no member twice, at most 64 levels deep, 1 MiB at most, "
    "and no number beyond 2^53-1. A whole number is written without a fraction or an exponent; a cost has at most four "
    "decimals. A request to `/v1/runs` has `request_id` or the header `Idempotency-Key`. A text that people read holds "
    "no secret and nothing that is not shown. Each parameter, and each header of one value, is there once."
)

_BUILD_LOCK: Final = Lock()


async def check_query(request: Request) -> None:
    """Refuse a query parameter that the route does not have: a misspelt filter would be ignored.

    Raises:
        InvalidInput: the query has an unknown parameter (`unknown_parameter`).
    """
    if not request.scope["query_string"]:
        return
    # The document is made at the first use, in a thread, because that takes a while.
    document = request.app.openapi_schema or await run_in_threadpool(request.app.openapi)
    operations = document["paths"].get(API_PREFIX + request.scope["route"].path_format, {})
    parameters = operations.get(request.method.lower(), {}).get("parameters", [])
    known = {parameter["name"] for parameter in parameters if parameter["in"] == "query"}
    unknown = [name for name in request.query_params if name and name not in known]
    if unknown:
        close = nearest_name(unknown[0], known)
        remedy = f"write `{close}`" if close else f"use one of {', '.join(sorted(known))}" if known else "leave it out"
        raise InvalidInput(Problem("/query", "unknown_parameter", f"there is no `{displayed(unknown[0])}`", remedy))


def describe(api: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document. It is made once, also if several requests ask for it at the same time."""
    with _BUILD_LOCK:
        if api.openapi_schema is None:
            api.openapi_schema = _build_document(api)
        return api.openapi_schema


def _build_document(api: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title="ContextOS",
        version=__version__,
        description=BEYOND_SCHEMA,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        servers=[{"url": "/", "description": "The server that publishes this document."}],
        routes=api.routes,
    )
    _, generated = models_json_schema(
        [(model, "validation") for model in PARSED_BODIES], ref_template="#/components/schemas/{model}"
    )
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update(generated["$defs"])
    request_schema = components["schemas"][InvokeRequest.__name__]
    request_schema["required"] = [name for name in request_schema["required"] if name not in FILLED_IN]
    for name, member in (("UserClaims", "user_id"), ("AgentIdentity", "agent_id"), ("UserDelegation", "token_ref")):
        components["schemas"][name]["properties"][member]["pattern"] = ID_PATTERN
    components["securitySchemes"] = {
        BEARER: {"type": "http", "scheme": "bearer"},
        SESSION_SCHEME: {"type": "apiKey", "in": "cookie", "name": SESSION_COOKIE},
        CSRF: {"type": "apiKey", "in": "header", "name": CSRF_HEADER},
    }
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            session: dict[str, list[str]] = {SESSION_SCHEME: []}
            if method != "get":
                session[CSRF] = []
            operation["security"] = [] if path in ("/v1/health", "/v1/ready") else [{BEARER: []}, session]
            for parameter in operation.get("parameters", ()):
                # A parameter that is left out is absent: the text of an address or a header is never `null`.
                [typed] = [schema for schema in parameter["schema"].pop("anyOf", [{}]) if schema.get("type") != "null"]
                parameter["schema"].update(typed)
    return document
