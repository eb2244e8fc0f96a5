"""The pages that look closer at runs: two runs compared, a run derived again beside its journal, and its entries."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Response

from contextos.deployment.queries.comparison import COMPARED_PARTS
from contextos.server.access import RunName, readable_run
from contextos.server.console.reading import ConsoleReaderHere, PageRoute, render_for
from contextos.server.operate.work import WorkHere
from contextos.server.operations import asked_by
from contextos.server.problems import not_found
from contextos.service.operations.comparisons import ComparisonQuery
from contextos.service.operations.entries import EntryQuery, list_entries
from contextos.service.operations.operation import Nothing
from contextos.service.operations.table import named_operation

comparison_routes: Final = APIRouter(include_in_schema=False, route_class=PageRoute)


@comparison_routes.get("/runs/{run}/compare")
async def get_comparison(
    reader: ConsoleReaderHere, name: RunName, work: WorkHere, other: Annotated[str, Query(max_length=128)] = ""
) -> Response:
    """Compare a run with another one, or ask with which."""
    run = await readable_run(reader.app, reader.caller, reader.roles, name)
    if not other:
        return render_for(reader, "compare.html", run=run, run_id=run.run_id, other=None, found=None, parts=[])
    compared_with = await readable_run(reader.app, reader.caller, reader.roles, other)
    operation = named_operation("runs.compare")
    asked = await asked_by(operation, reader.app, reader.caller, reader.roles, name)
    query = ComparisonQuery(other=other)
    found = await work.do(reader.tenant_id, lambda _: operation.run(asked, query))
    parts = [(part, [one for one in found.differences if one.part == part]) for part in COMPARED_PARTS]
    return render_for(reader, "compare.html", run=run, run_id=run.run_id, other=compared_with, found=found, parts=parts)


@comparison_routes.get("/runs/{run}/replay")
async def get_replay(reader: ConsoleReaderHere, name: RunName, work: WorkHere) -> Response:
    """Derive a run again, and show the first entry that differs beside what was derived."""
    run = await readable_run(reader.app, reader.caller, reader.roles, name)
    operation = named_operation("runs.replay")
    asked = await asked_by(operation, reader.app, reader.caller, reader.roles, name)
    replayed = await work.do(reader.tenant_id, lambda _: operation.run(asked, Nothing()))
    recorded = None
    if replayed.entry is not None and run.fault is None:
        recorded = (await list_entries(asked, EntryQuery(seq=replayed.entry))).items
    return render_for(reader, "replay.html", run=run, run_id=run.run_id, replayed=replayed, recorded=recorded)


@comparison_routes.get("/runs/{run}/entries")
async def get_entries(
    reader: ConsoleReaderHere,
    name: RunName,
    seq: Annotated[int | None, Query(ge=1)] = None,
    call: Annotated[str, Query(max_length=200)] = "",
    cursor: Annotated[str, Query(max_length=512)] = "",
) -> Response:
    """Show the entries of a run: all in pages, with `seq` one of them, or with `call` those of a tool call."""
    run = await readable_run(reader.app, reader.caller, reader.roles, name)
    asked = await asked_by(named_operation("runs.entries"), reader.app, reader.caller, reader.roles, name)
    found = await list_entries(asked, EntryQuery(seq=seq, call=call, cursor=cursor))
    whole = seq is None and not call
    if seq is not None and not found.items:
        raise not_found()
    query = {"call": call} if call else {}
    return render_for(
        reader,
        "entries.html",
        run=run,
        run_id=run.run_id,
        entries=found.items,
        cursor=found.cursor,
        query=query,
        whole=whole,
    )
