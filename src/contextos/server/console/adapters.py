"""The page of adapters: their tools with definition and quarantine, as `adapters.list` answers."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Response

from contextos.server.access import require_role
from contextos.server.console.links import acts_on
from contextos.server.console.reading import ConsoleReaderHere, PageRoute, render_for
from contextos.server.shared.pages import LongCursor
from contextos.service.acts import signer_elsewhere
from contextos.service.operations.adapters import list_tools
from contextos.service.operations.operation import READER_ROLES, Asked, Paged

adapter_page_routes: Final = APIRouter(include_in_schema=False, route_class=PageRoute)


@adapter_page_routes.get("/adapters")
async def get_adapters_page(reader: ConsoleReaderHere, cursor: LongCursor = "") -> Response:
    """List the tools, those of one adapter together."""
    require_role(reader.roles, *READER_ROLES)
    asked = Asked(reader.app, reader.tenant_id, signer_elsewhere(reader.caller.subject))
    page = await list_tools(asked, Paged(cursor=cursor))
    adapters: dict[str, list[Any]] = {}
    for tool in page.items:
        adapters.setdefault(tool.adapter_id, []).append(tool)
    return render_for(
        reader,
        "adapters.html",
        adapters=adapters,
        cursor=page.cursor,
        begins=not cursor,
        acts=lambda tool: acts_on("adapters.list", tool.to_json(), reader.roles),
    )
