"""Answers every error of the API with a problem document (RFC 9457), and maps each class of error to a status.

An answer says only what the caller needs: where the fault is of the server, it says what to do, and the log has the
reason.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import asdict
from http import HTTPStatus
from typing import Final, get_args

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.memory import RefusalReason
from contextos.errors import (
    ApprovalRefused,
    Conflict,
    ConflictingRequest,
    ContextOSError,
    Integrity,
    InvalidInput,
    LostReply,
    MalformedJson,
    NotFound,
    OtherEnvironment,
    Overloaded,
    Unavailable,
)
from contextos.server.edge import TYPE_PREFIX
from contextos.service.views import PROBLEM_JSON, ProblemDocument, ProblemPart
from contextos.telemetry.logs import error_fields

SECURE_HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""The headers of every answer: no cache keeps it, no browser renders it as a page, no page of another origin reads it,
and no link from it passes on its address.
"""
STATUSES: Final[Mapping[type[ContextOSError], int]] = {
    MalformedJson: 400,
    ConflictingRequest: 422,
    InvalidInput: 422,
    NotFound: 404,
    ApprovalRefused: 403,
    Conflict: 409,
    OtherEnvironment: 409,
    Overloaded: 429,
    Unavailable: 503,
    LostReply: 502,
    Integrity: 500,
    ContextOSError: 500,
}
"""The status of each class of error. A class that is not listed has the status of its nearest base class."""

TOO_LATE: Final = frozenset(
    {"not_waiting", "already_answered", "expired", "other_binding", "approval_void", "not_void"}
    | {*get_args(RefusalReason)}
)
"""The reasons of `ApprovalRefused` that concern the question or the memory, not the person. Their status is 409."""

IDENTITY_REFUSED: Final = "identity_refused"
"""The code of an `InvalidInput` whose stated identity is not the one that the token proves. Its status is 403."""

_OUR_FAULT: Final = "the request could not be answered; nothing of it is lost, and the log of the server has the reason"
_TRY_LATER: Final = "a dependency of the server does not answer; send the same request again after `Retry-After`"
_LOG: Final = logging.getLogger(__name__)


class HttpProblem(HTTPException):
    """A refusal that only HTTP has, such as a wrong media type, so that `contextos.errors` has no class for it."""

    def __init__(self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.code = code


def not_found() -> HttpProblem:
    """Return the 404 that answers both for a thing that does not exist and for a thing that the caller may not see."""
    return HttpProblem(404, "not_found", "there is nothing at this address that you may see")


def status_of(error: ContextOSError) -> int:
    """Return the HTTP status of an error.

    >>> status_of(NotFound("there is no such run"))
    404
    """
    if isinstance(error, ApprovalRefused) and error.reason in TOO_LATE:
        return 409
    if isinstance(error, InvalidInput) and error.problems[0].code == IDENTITY_REFUSED:
        return 403
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def add_problem_handlers(api: FastAPI) -> None:
    """Register handlers that answer every error of `api` with a problem document, also errors of the framework."""
    for kind, handler in _HANDLERS.items():
        api.add_exception_handler(kind, handler)
    api.add_exception_handler(Exception, _defect)


async def answer_to(request: Request, error: Exception) -> Response | None:
    """Return the problem document that answers an error; None for a defect of the server."""
    handler = next((_HANDLERS[kind] for kind in _HANDLERS if isinstance(error, kind)), None)
    return await handler(request, error) if handler is not None else None


async def _contextos_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ContextOSError), "it is registered for these"
    status, code, detail = status_of(error), error.code, str(error)
    headers: dict[str, str] = {}
    parts: list[ProblemPart] = []
    if isinstance(error, ApprovalRefused):
        code = error.reason
    elif isinstance(error, InvalidInput):
        parts = [ProblemPart(**asdict(problem)) for problem in error.problems]
    elif isinstance(error, NotFound):
        detail = not_found().detail
    elif isinstance(error, OtherEnvironment):
        # To wait does not help. The log names the run and the two environments, which the answer does not show.
        detail = error.OUTSIDE
        _LOG.warning("a request was refused: %s", error)
    elif isinstance(error, Unavailable):
        headers["Retry-After"] = str(max(1, -(-error.retry_after_ms // 1000)))
        detail = detail if status == 429 else _TRY_LATER
    elif status >= 500:
        detail = _OUR_FAULT
    if status >= 500:
        _LOG.warning("a request failed", extra=error_fields(error))
    return problem_response(status, code, detail, parts, headers)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "it is registered for these"
    if isinstance(error, HttpProblem):
        return problem_response(error.status_code, error.code, error.detail, headers=error.headers)
    if error.status_code == 404:
        missing = not_found()
        return problem_response(404, missing.code, missing.detail)
    if error.status_code == 405:
        detail = "this address has no such method; `Allow` lists those that it has"
        return problem_response(405, "method_not_allowed", detail, headers={"Allow": ", ".join(_allowed(request))})
    code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
    return problem_response(error.status_code, code, "the request cannot be read as HTTP", headers=error.headers)


def _allowed(request: Request) -> Iterator[str]:
    """Yield the methods of an address. The framework itself names only the methods of the first route."""
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        scope = {**request.scope, "method": method}
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.routes):
            yield from ("GET", "HEAD") if method == "GET" else (method,)


async def _unfit_parameters(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError), "it is registered for these"
    parts = []
    for fault in error.errors():
        detail = fault["msg"][:1].lower() + fault["msg"][1:]
        parts.append(ProblemPart(pointer=pointer(fault["loc"][1:]), code=fault["type"], detail=detail))
    return problem_response(422, "invalid_input", "a parameter of the address does not fit", parts)


_HANDLERS: Final[Mapping[type[Exception], Callable[[Request, Exception], Awaitable[Response]]]] = {
    ContextOSError: _contextos_error,
    HTTPException: _http_error,
    RequestValidationError: _unfit_parameters,
}


async def _defect(_request: Request, _error: Exception) -> Response:
    # The framework answers it outside of every middleware, and raises it again, so that the log has its stack.
    return problem_response(500, "defect", _OUR_FAULT, headers=SECURE_HEADERS)


def problem_response(
    status: int,
    code: str,
    detail: str,
    parts: list[ProblemPart] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a problem document as a response."""
    title = HTTPStatus(status).phrase
    document = ProblemDocument(
        type=TYPE_PREFIX + code, title=title, status=status, detail=detail, code=code, errors=parts or []
    )
    return Response(document.model_dump_json(exclude_defaults=True), status, headers, PROBLEM_JSON)
