"""The audit pages: verify the tenant or an export, the chain of a run, and what people signed.

An export is sent to `/v1/exports/verifications` by the page's script. Without scripts the printed command verifies it.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Response
from fastapi.responses import RedirectResponse

from contextos.contracts.model import MAX_COUNT
from contextos.server.access import require_role
from contextos.server.console.reading import CONSOLE, ConsoleReaderHere, PageRoute, render_for
from contextos.server.console.tables import forms_of, pages_of
from contextos.server.operate.exports import MAX_UPLOADED_BYTES
from contextos.server.operate.verifications import VerifiedRange, verify_range
from contextos.server.operate.work import WorkHere
from contextos.server.operations import asked_by
from contextos.server.shared.pages import LongCursor
from contextos.service.operations.audits import list_acts, read_chain
from contextos.service.operations.operation import READER_ROLES, Paged
from contextos.service.operations.table import named_operation

audit_routes: Final = APIRouter(include_in_schema=False, route_class=PageRoute)

ACTS: Final = named_operation("acts.list")
CHAIN: Final = named_operation("runs.chain")
MAX_ACTS: Final = 20
MAX_SEGMENTS: Final = 100
MAX_SHOWN_STREAMS: Final = 200
"""The most streams of a verification on a page; all of them are counted."""
NumberAsked = Annotated[int | None, Query(ge=1, le=MAX_COUNT)]


@audit_routes.get("/sections/audit")
async def get_audit(reader: ConsoleReaderHere, cursor: LongCursor = "") -> Response:
    """Show what an auditor begins with, and what people signed last."""
    acts = None
    if not reader.roles.isdisjoint(READER_ROLES):
        asked = await asked_by(ACTS, reader.app, reader.caller, reader.roles, "")
        acts = await list_acts(asked, Paged(limit=MAX_ACTS, cursor=cursor))
    return render_for(
        reader,
        "audit.html",
        acts=acts,
        begins=not cursor,
        most_mb=MAX_UPLOADED_BYTES >> 20,
        operations=pages_of("audit", reader.roles),
        forms=forms_of("audit", reader.roles),
    )


@audit_routes.get("/audit/verification")
async def get_verification(
    reader: ConsoleReaderHere, work: WorkHere, first: NumberAsked = None, last: NumberAsked = None
) -> Response:
    """Verify the tenant, or a range of its runs, now. Nothing is recorded."""
    require_role(reader.roles, *READER_ROLES)
    found = await verify_range(reader.app, reader.tenant_id, work, VerifiedRange(first=first or 1, last=last))
    return render_for(reader, "verification.html", found=found, most=MAX_SHOWN_STREAMS)


@audit_routes.get("/audit/chain")
async def get_chain(reader: ConsoleReaderHere, run: str = "", cursor: LongCursor = "") -> Response:
    """Draw the chain of a run: the entries that each signature covers, and where the first break is."""
    if not run:
        return RedirectResponse(f"{CONSOLE}/sections/audit", 303)
    asked = await asked_by(CHAIN, reader.app, reader.caller, reader.roles, run)
    chain = await read_chain(asked, Paged(limit=MAX_SEGMENTS, cursor=cursor))
    return render_for(reader, "chain.html", chain=chain, run=asked.name, begins=not cursor)
