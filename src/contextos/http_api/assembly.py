"""The whole API as one ASGI application, over an open deployment."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contextos.app import App
from contextos.app.bearer import BearerTokens
from contextos.http_api.openapi import PROBLEM, describe
from contextos.http_api.operate.groups import OPERATE_ROUTES
from contextos.http_api.operate.metrics import metrics_routes
from contextos.http_api.operate.work import Work
from contextos.http_api.problems import SECURE_HEADERS, add_problem_handlers, problem_response
from contextos.http_api.rates import MAX_LISTS, MAX_LISTS_PER_TENANT, Places, RequestRates
from contextos.http_api.routes.approvals import approval_routes
from contextos.http_api.routes.cancels import cancel_routes
from contextos.http_api.routes.events import event_routes
from contextos.http_api.routes.health import health_routes
from contextos.http_api.routes.published import published_routes
from contextos.http_api.routes.runs import run_routes
from contextos.http_api.routes.sessions import session_routes

MAX_HEAD_BYTES: Final = 32_768
"""The most bytes of the address and the headers of a request."""

_HEADERS: Final = [(name.lower().encode(), value.encode()) for name, value in SECURE_HEADERS.items()]


def http_api(app: App, tokens: BearerTokens) -> FastAPI:
    """Return the API over `app`. `tokens` verifies bearer tokens."""
    api = FastAPI(title="ContextOS", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    api.state.contextos = app
    api.state.bearer_tokens = tokens
    api.state.rates = RequestRates(app.settings.pressure, app.deployment.ports.clock)
    api.state.lists = Places("lists of runs", MAX_LISTS, MAX_LISTS_PER_TENANT)
    api.state.stopping = asyncio.Event()
    api.state.work = Work(api.state.stopping, app.stores)
    add_problem_handlers(api)
    for routes in (health_routes, run_routes, event_routes, cancel_routes, approval_routes, session_routes):
        api.include_router(routes, prefix="/v1", responses=PROBLEM)
    for routes in OPERATE_ROUTES:
        api.include_router(routes, prefix="/v1", responses=PROBLEM)
    api.include_router(metrics_routes, responses=PROBLEM)
    api.include_router(published_routes)
    api.add_middleware(BoundedHeads)
    api.add_middleware(SecureAnswers)
    api.openapi = partial(describe, api)  # type: ignore[method-assign]  # as FastAPI documents it
    return api


class BoundedHeads:
    """Refuses a request whose head is larger than `MAX_HEAD_BYTES`. The parser alone lets one pass that arrives in one
    piece.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        size = len(scope["path"]) + len(scope["query_string"]) + sum(map(_size, scope["headers"]))
        if size > MAX_HEAD_BYTES:
            detail = f"the address and the headers have more than {MAX_HEAD_BYTES} bytes; send less"
            refused = problem_response(431, "head_too_large", detail, headers={"Connection": "close"})
            await refused(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _size(header: tuple[bytes, bytes]) -> int:
    return len(header[0]) + len(header[1])


class SecureAnswers:
    """Adds `SECURE_HEADERS` to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_secure(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers: list[Any] = message.setdefault("headers", [])
                headers.extend(_HEADERS)
            await send(message)

        await self._app(scope, receive, send_secure)
