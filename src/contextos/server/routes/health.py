"""Liveness (`/health`), and readiness with its warnings (`/ready`). Neither route needs a token."""

from __future__ import annotations

import asyncio
from typing import Final, Literal

from fastapi import APIRouter, Request

from contextos.contracts.model import Model, Seq
from contextos.errors import Unavailable
from contextos.server.callers import AppHere, TokensHere
from contextos.server.problems import HttpProblem

health_routes: Final = APIRouter(tags=["health"])

MAX_READY_S: Final = 2
"""After this many seconds the store counts as silent. A load balancer would not wait longer either."""


class Health(Model):
    """The server lives."""

    status: Literal["live"]


class Readiness(Model):
    """The server is ready. `warnings` is left out where there are none; `no_witness`: this is a service without a
    witness, so a cut end of its journals is not found; `configuration`: something is configured and cannot be in force
    now, which `contextos policies list` and `GET /v1/policies` list; `issuers`: the keys of `silent_issuers` could not
    be had at the last attempt, in the last five minutes, and such a token got a 503. `shared_credentials` are the
    adapters whose credentials serve every tenant. `shared_collector`: one collector gets the traces, events and metrics
    of every tenant that has none of its own.
    """

    status: Literal["ready"]
    warnings: Seq[Literal["no_witness", "configuration", "issuers"]] = ()
    silent_issuers: Seq[str] = ()
    shared_credentials: Seq[str] = ()
    shared_collector: bool = False


@health_routes.get("/health")
async def get_health() -> Health:
    """Answer as long as the process can."""
    return Health(status="live")


@health_routes.get("/ready", response_model_exclude_defaults=True)
async def get_readiness(app: AppHere, tokens: TokensHere, request: Request) -> Readiness:
    """Answer 200 while requests are taken: the store answers soon and has room, and the server is not stopping."""
    if request.app.state.draining.is_set():
        raise HttpProblem(503, "stopping", "this server is stopping; ask another one", {"Retry-After": "1"})
    try:
        async with asyncio.timeout(MAX_READY_S):
            async for _ in app.stores.due(0, limit=1):
                break
            await app.stores.require_room()
    except TimeoutError:
        raise Unavailable("store", f"it did not answer within {MAX_READY_S} s") from None
    warnings: Seq[Literal["no_witness", "configuration", "issuers"]] = ("no_witness",) if app.lacks_witness else ()
    if app.configuration.latest():
        warnings = (*warnings, "configuration")
    silent, logins = tokens.silent_issuers(), app.deployment.ports.approval_logins
    if logins is not None and logins.is_silent():
        silent = (*silent, logins.issuer.issuer)
    partners = app.deployment.ports.partners
    silent = (*silent, *(name for name, partner in partners.items() if partner.is_silent()))
    if silent:
        warnings = (*warnings, "issuers")
    return Readiness(
        status="ready",
        warnings=warnings,
        silent_issuers=tuple(dict.fromkeys(silent)),
        shared_credentials=app.shared_credentials,
        shared_collector=app.shares_collector,
    )
