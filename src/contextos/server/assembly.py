"""Assembles the whole API as one ASGI application, over an open deployment."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from fastapi import Depends, FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contextos.server.callers import resource_metadata
from contextos.server.console.groups import console_routes
from contextos.server.control.children import child_places
from contextos.server.control.groups import CONTROL_ROUTES
from contextos.server.cookies import Logins
from contextos.server.edge import HttpEdge
from contextos.server.login.browsers import browser_routes
from contextos.server.login.callers import caller_routes
from contextos.server.login.passkeys import passkey_routes
from contextos.server.openapi import API_PREFIX, PROBLEM, check_query, describe
from contextos.server.operate.groups import OPERATE_ROUTES
from contextos.server.operate.metrics import metrics_routes
from contextos.server.operate.work import Work
from contextos.server.operations import operation_routes
from contextos.server.problems import SECURE_HEADERS, add_problem_handlers
from contextos.server.rates import (
    MAX_HELD_CALLS,
    MAX_HELD_CALLS_PER_TENANT,
    MAX_LISTS,
    MAX_LISTS_PER_TENANT,
    MAX_STREAMS,
    MAX_STREAMS_PER_TENANT,
    Places,
    RequestRates,
)
from contextos.server.routes.approvals import approval_routes
from contextos.server.routes.events import event_routes
from contextos.server.routes.health import health_routes
from contextos.server.routes.published import published_routes
from contextos.server.routes.runs import run_routes
from contextos.server.routes.sessions import session_routes
from contextos.server.routes.spans import span_routes
from contextos.workspace import App
from contextos.workspace.logins.bearer import BearerTokens
from contextos.workspace.logins.development_logins import DevelopmentLogins
from contextos.workspace.logins.sessions import BrowserSessions

_HEADERS: Final = [(name.lower().encode(), value.encode()) for name, value in SECURE_HEADERS.items()]


def http_api(app: App, tokens: BearerTokens, hosts: Sequence[str] = ()) -> FastAPI:
    """Return the API over `app`. `tokens` verifies bearer tokens. With `hosts` a request for another host is refused.

    Raises:
        InvalidSettings: as `App.browser_logins`.
    """
    api = routed_api(hosts)
    api.state.contextos = app
    api.state.bearer_tokens = tokens
    api.state.resource_metadata = resource_metadata(app.settings)
    api.state.browser_logins = _logins(app, tokens)
    api.state.rates = RequestRates(app.settings.pressure, app.deployment.ports.clock)
    api.state.percent_per_address = percent = app.settings.pressure.max_http_percent_per_address
    api.state.streams = Places("streams of events", MAX_STREAMS, MAX_STREAMS_PER_TENANT, percent_per_address=percent)
    api.state.held = Places("calls that wait", MAX_HELD_CALLS, MAX_HELD_CALLS_PER_TENANT, percent_per_address=percent)
    api.state.lists = Places("lists of runs", MAX_LISTS, MAX_LISTS_PER_TENANT)
    api.state.stopping = asyncio.Event()
    api.state.work = Work(api.state.stopping, app.stores)
    api.state.child_places = child_places()
    api.state.wait_for_driven = app.wait_for_driven
    return api


def _logins(app: App, tokens: BearerTokens) -> Logins | None:
    if not tokens.development:
        return app.browser_logins(tokens)
    sessions = BrowserSessions(app.stores, tokens.keys, tokens.clock, tokens.directory.tenants)
    return DevelopmentLogins(tokens, sessions)


def routed_api(hosts: Sequence[str] = ()) -> FastAPI:
    """Return the API without an app: its routes, middleware and OpenAPI document. `hosts` are as in `HttpEdge`."""
    api = FastAPI(title="ContextOS", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    api.state.draining = asyncio.Event()
    add_problem_handlers(api)
    for routes in (
        health_routes,
        caller_routes,
        passkey_routes,
        run_routes,
        span_routes,
        event_routes,
        approval_routes,
        session_routes,
        operation_routes(),
        *CONTROL_ROUTES,
        *OPERATE_ROUTES,
    ):
        api.include_router(routes, prefix=API_PREFIX, responses=PROBLEM, dependencies=[Depends(check_query)])
    api.include_router(browser_routes)
    api.include_router(console_routes)
    api.include_router(metrics_routes, responses=PROBLEM, dependencies=[Depends(check_query)])
    api.include_router(published_routes)
    api.add_middleware(HttpEdge, hosts=hosts)
    api.add_middleware(SecureAnswers, draining=api.state.draining)
    api.add_middleware(HeadAsGet)
    api.openapi = partial(describe, api)  # type: ignore[method-assign]  # as FastAPI documents it
    return api


class SecureAnswers:
    """Adds to every answer the `SECURE_HEADERS` that the answer does not state itself. While the server drains, an
    answer also ends its connection, so that the next request goes to another server.
    """

    def __init__(self, app: ASGIApp, draining: asyncio.Event) -> None:
        self._app, self._draining = app, draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_secure(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers: list[Any] = message.setdefault("headers", [])
                present = {name for name, _ in headers}
                headers.extend(header for header in _HEADERS if header[0] not in present)
                if self._draining.is_set():
                    headers.append((b"connection", b"close"))
            await send(message)

        await self._app(scope, receive, send_secure)


class HeadAsGet:
    """Answers HEAD with the status and the headers of GET, and no body (RFC 9110, section 9.3.2). The answer is
    complete after its headers, so that a stream ends as if its reader had gone away.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b""})

        if scope["type"] == "http" and scope["method"] == "HEAD":
            await self._app({**scope, "method": "GET"}, receive, send_head)
        else:
            await self._app(scope, receive, send)
