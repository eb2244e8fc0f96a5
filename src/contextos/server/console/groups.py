"""All routes of the console."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from fastapi.responses import RedirectResponse

from contextos.server.console.assets import asset_routes
from contextos.server.console.audit import audit_routes
from contextos.server.console.comparisons import comparison_routes
from contextos.server.console.facts import fact_page_routes
from contextos.server.console.inbox import inbox_routes
from contextos.server.console.login import login_routes
from contextos.server.console.packs import pack_page_routes
from contextos.server.console.playground import playground_routes
from contextos.server.console.reading import CONSOLE
from contextos.server.console.runs import run_page_routes
from contextos.server.console.selector import selector_routes
from contextos.server.console.signing import signing_routes
from contextos.server.console.tables import table_routes

console_routes: Final = APIRouter(prefix=CONSOLE, include_in_schema=False)

for _routes in (
    asset_routes,
    login_routes,
    inbox_routes,
    run_page_routes,
    comparison_routes,
    audit_routes,
    selector_routes,
    playground_routes,
    table_routes,
    signing_routes,
    pack_page_routes,
    fact_page_routes,
):
    console_routes.include_router(_routes)


@console_routes.get("")
async def get_console() -> RedirectResponse:
    """Send a browser to the first page."""
    return RedirectResponse(f"{CONSOLE}/inbox", 303)
