"""The pages of runs: a list that is searched by links, and one run with its story, its reasons and its record."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response

from contextos.deployment.dead_letters import dead_letter
from contextos.errors import ApprovalRefused, NotFound
from contextos.server.access import RunName, askable_question, is_own, readable_run, visible_runs
from contextos.server.console.acts import Link, form_address
from contextos.server.console.reading import ConsoleReader, ConsoleReaderHere, PageRoute, render_for
from contextos.server.problems import HttpProblem
from contextos.server.rates import ListsHere
from contextos.server.routes.search import SearchHere
from contextos.service.runs import STATES, Run
from contextos.trust.approvals.assertion import OPERATOR_ROLE

run_page_routes: Final = APIRouter(include_in_schema=False, route_class=PageRoute)

MAX_RUNS: Final = 50
RUN_TOPICS: Final = ("authority", "shown", "policy", "gate", "fact", "model", "call")
"""The topics of reasons, in the order of the page."""
RUN_LIMITS: Final = (
    ("total_tokens", "tokens"),
    ("max_tool_calls", "tool_calls"),
    ("max_cost_cents", "cost_cents"),
    ("wall_clock_ms", "latency_ms"),
)
"""The limits of a run, each with what is used of it (`AtomicUsage`)."""


@run_page_routes.get("/runs")
async def get_runs_page(
    request: Request,
    reader: ConsoleReaderHere,
    search: SearchHere,
    lists: ListsHere,
    state: Annotated[str, Query(max_length=64)] = "",
    cursor: Annotated[str, Query(max_length=64)] = "",
) -> Response:
    """List the runs that the reader may see, newest first."""
    with lists.place(reader.tenant_id):
        page = await visible_runs(
            reader.app, reader.caller, reader.roles, state=state or None, search=search, limit=MAX_RUNS, cursor=cursor
        )
    query = {name: value for name, value in request.query_params.items() if name != "cursor" and value}
    return render_for(
        reader,
        "runs.html",
        runs=page.items,
        cursor=page.cursor,
        query=query,
        states=sorted(STATES),
        state=state,
        begins=not cursor,
    )


@run_page_routes.get("/runs/{run}")
async def get_run_page(reader: ConsoleReaderHere, name: RunName) -> Response:
    """Show one run: where it is, its story, why it did what it did, what it used, and its record."""
    runs = reader.app.runs
    run = await readable_run(reader.app, reader.caller, reader.roles, name)
    timeline, explained, budget = await runs.timeline(run), await runs.why(run), await runs.budget(run)
    reasons = {topic: [reason for reason in explained.reasons if reason.topic == topic] for topic in RUN_TOPICS}
    used = budget.atomic_usage if budget is not None else None
    limits = [
        (limit, getattr(budget, limit), getattr(used, usage), budget.limited_by.get(limit, ""))
        for limit, usage in RUN_LIMITS
        if budget is not None and used is not None
    ]
    return render_for(
        reader,
        "run.html",
        may_answer=run.waits_for == "approval" and await _may_answer(reader, run.run_id),
        acts=await _acts(reader, run),
        run=run,
        timeline=timeline,
        reasons=reasons,
        limits=limits,
        fault=run.fault or timeline.fault or explained.fault,
        record=run.record.to_json() if run.record is not None else None,
    )


async def _may_answer(reader: ConsoleReader, run_id: str) -> bool:
    with suppress(HttpProblem, ApprovalRefused):
        await askable_question(reader.app, reader.caller, reader.roles, run_id, answering=True)
        return True
    return False


async def _acts(reader: ConsoleReader, run: Run) -> list[Link]:
    """Return the links to the acts on a run that its state and the roles of the reader allow."""
    operates, own = OPERATOR_ROLE in reader.roles, is_own(reader.caller, run)
    labels = {
        "cancel": not run.ended and (operates or own),
        "settle": run.waits_for == "settlement" and operates,
        "reask": run.waits_for == "approval" and (operates or own),
        "select": run.waits_for == "slot" and own,
        "retry": not run.ended and operates and await _is_stuck(reader, run.run_id),
        "erase": operates,
    }
    groups = {"select": "slots"}
    return [
        Link(name, form_address(f"{groups.get(name, 'runs')}.{name}", run.run_id))
        for name, is_shown in labels.items()
        if is_shown
    ]


async def _is_stuck(reader: ConsoleReader, run_id: str) -> bool:
    with suppress(NotFound):
        await dead_letter(reader.app.deployment.ports.stores.tenant(reader.tenant_id), run_id)
        return True
    return False
