"""The pages of runs: a list that is searched by links, and one run with its story, its reasons and its record."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.model import MAX_COUNT
from contextos.deployment.dead_letters import dead_letter
from contextos.errors import ApprovalRefused, NotFound
from contextos.server.access import RunName, askable_question, is_own, readable_run, visible_runs
from contextos.server.console.links import Link, form_address
from contextos.server.console.reading import ConsoleReader, ConsoleReaderHere, PageRoute, render_for
from contextos.server.console.rendering import CutLines
from contextos.server.console.selector import SELECTOR
from contextos.server.problems import HttpProblem
from contextos.server.rates import ListsHere
from contextos.server.routes.search import SearchHere
from contextos.service.runs import STATES, Run
from contextos.trust.approvals.assertion import OPERATOR_ROLE

run_page_routes: Final = APIRouter(include_in_schema=False, route_class=PageRoute)

MAX_RUNS: Final = 50
MAX_STORY_LINES: Final = 150
"""The most lines of a story, and the most reasons, on a page."""
MAX_SHOWN: Final = 40
"""The most effects, and approvals, on a page."""
MAX_RECORD_BYTES: Final = 30_000
"""The longest record that a page has in full."""
COMPACT: Final = "compact"
LinePlace = Annotated[int, Query(ge=0, le=MAX_COUNT)]
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
async def get_run_page(
    reader: ConsoleReaderHere,
    name: RunName,
    story: LinePlace = 0,
    why: LinePlace = 0,
    view: Annotated[str, Query(max_length=16)] = "",
) -> Response:
    """Show one run: where it is, its story, why it did what it did, what it used, and its record. Of a long run, the
    page has the lines of the story from `story` on, and the reasons from `why` on. The story is compact with the
    `view` of that name.
    """
    view = COMPACT if view == COMPACT else ""
    run = await readable_run(reader.app, reader.caller, reader.roles, name)
    timeline, explained, budget = await reader.app.runs.tell(run)
    reasons = [(topic, [one for one in explained.reasons if one.topic == topic]) for topic in RUN_TOPICS]
    used = budget.atomic_usage if budget is not None else None
    limits = [
        (limit, getattr(budget, limit), getattr(used, usage), budget.limited_by.get(limit, ""))
        for limit, usage in RUN_LIMITS
        if budget is not None and used is not None
    ]
    record = run.record.to_json() if run.record is not None else None
    return render_for(
        reader,
        "run.html",
        may_answer=run.waits_for == "approval" and await _may_answer(reader, run.run_id),
        selector=SELECTOR if run.waits_for == "slot" and run.user_id == reader.caller.subject else "",
        acts=await _acts(reader, run),
        run=run,
        story=_cut([(part.title, part.moments) for part in timeline.parts], story),
        reasons=_cut(reasons, why),
        run_id=run.run_id,
        view=view,
        kept={"view": view} if view else {},
        limits=limits,
        fault=run.fault or timeline.fault or explained.fault,
        record=record,
        is_short=len(canonical(record)) <= MAX_RECORD_BYTES,
        most=MAX_SHOWN,
    )


def _cut(groups: Sequence[tuple[str, Sequence[Any]]], begin: int) -> CutLines:
    """Return at most `MAX_STORY_LINES` lines, from the line `begin` on."""
    total, at, shown = sum(len(lines) for _, lines in groups), 0, list[tuple[str, Sequence[Any]]]()
    for title, lines in groups:
        part = lines[max(0, begin - at) : max(0, begin + MAX_STORY_LINES - at)]
        shown += [(title, part)] if part else []
        at += len(lines)
    return CutLines(shown, begin, min(begin + MAX_STORY_LINES, total), total)


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
        "retry": not run.ended and operates and await _is_stuck(reader, run.run_id),
        "erase": operates,
    }
    return [Link(name, form_address(f"runs.{name}", run.run_id)) for name, is_shown in labels.items() if is_shown]


async def _is_stuck(reader: ConsoleReader, run_id: str) -> bool:
    with suppress(NotFound):
        await dead_letter(reader.app.deployment.ports.stores.tenant(reader.tenant_id), run_id)
        return True
    return False
