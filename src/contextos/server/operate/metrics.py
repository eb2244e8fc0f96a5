"""`GET /metrics`: the metrics of the caller's tenant, in the text format of Prometheus.

The caller needs one of `METRICS_ROLES` in the tenant: a person, or a scraper with the token of a person. The metrics of
another tenant or of the whole process cannot be read here; `app.prometheus_text` has them for the operator.
"""

from __future__ import annotations

import asyncio
from typing import Final

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from contextos.server.access import RolesHere, require_role
from contextos.server.callers import AppHere, CallerHere
from contextos.server.problems import HttpProblem
from contextos.service.operations.operation import READER_ROLES

metrics_routes: Final = APIRouter(tags=["metrics"])

METRICS_ROLES: Final = (*READER_ROLES, "metrics_reader")
"""The roles that may read the metrics of their tenant. A `metrics_reader` sees no run."""
METRICS_MEDIA_TYPE: Final = "text/plain; version=0.0.4"


@metrics_routes.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"description": "The metrics of the tenant.", "content": {"text/plain": {}}}},
)
async def get_metrics(app: AppHere, caller: CallerHere, roles: RolesHere) -> PlainTextResponse:
    """Read the metrics of the tenant, as this process counted them."""
    require_role(roles, *METRICS_ROLES)
    text = await asyncio.to_thread(app.prometheus_text, caller.tenant_id)
    if text is None:
        raise HttpProblem(404, "no_metrics", "this server measures nothing; its settings have no `[telemetry]`")
    return PlainTextResponse(text, media_type=METRICS_MEDIA_TYPE)
