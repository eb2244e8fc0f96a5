"""`GET /v1/runs/{run}/spans`: the trace of a run, for those who may read the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fastapi import APIRouter

from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import Entry
from contextos.server.access import RolesHere, RunName, readable_run
from contextos.server.callers import AppHere, CallerHere
from contextos.server.problems import HttpProblem
from contextos.service.runs import Run
from contextos.service.views import SpanDocument, SpanEventDocument, TraceDocument
from contextos.telemetry.ended_run import ended_parts
from contextos.telemetry.events import run_events
from contextos.telemetry.spans import Span, run_spans

span_routes: Final = APIRouter(tags=["runs"])


@span_routes.get("/runs/{run}/spans")
async def get_spans(app: AppHere, caller: CallerHere, roles: RolesHere, name: RunName) -> TraceDocument:
    """Read the trace of a run: its spans and events, which have ids, names, digests and numbers, and no content. They
    are computed from its journal, also where nothing is sent to a collector.
    """
    run = await readable_run(app, caller, roles, name)
    return _trace(run, await app.runs.entries(run))


def _trace(run: Run, entries: Sequence[Entry]) -> TraceDocument:
    received = read_body(entries[0])
    if received is None:
        raise HttpProblem(404, "no_trace", "the request of this run was erased, and its trace with it")
    parts = list(ended_parts(entries))
    return TraceDocument(
        run_id=run.run_id,
        trace_id=received["request"]["trace"]["trace_id"],
        ended=run.ended,
        spans=[_span(span) for part in parts for span in run_spans(part)],
        events=[
            SpanEventDocument(
                name=event.name,
                at_us=event.at_us,
                severity=event.severity,
                span_id=event.span_id,
                attributes=dict(event.attributes),
            )
            for part in parts
            for event in run_events(part)
        ],
    )


def _span(span: Span) -> SpanDocument:
    return SpanDocument(
        span_id=span.span_id,
        parent_id=span.parent_id,
        is_remote_parent=span.remote_parent,
        name=span.name,
        start_us=span.start_us,
        end_us=span.end_us,
        failed=span.failed,
        link=span.link,
        attributes=dict(span.attributes),
    )
