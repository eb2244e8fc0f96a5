"""`sessions`: the long-running runs of a tenant, how far each is and when its driver was last heard of."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from contextos.cli.command_context import (
    WORKSPACE,
    CommandContext,
    JsonOption,
    TenantOption,
    WorkspaceOption,
    with_context,
)
from contextos.cli.terminal import Heading, give
from contextos.contracts.encoding.display_escape import displayed
from contextos.queries.run_index import newest_runs

MAX_LOOKED: Final = 1000
"""Runs that one call looks at, for most of them may be of other modes."""


def sessions_command(
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many at most.")] = 20,
    after: Annotated[
        int,
        typer.Option("--after", min=0, max=2**62, help="Go on after this number; sessions are listed newest first."),
    ] = 0,
    live: Annotated[bool, typer.Option("--live", help="Only those that have not ended.")] = False,
    workspace: WorkspaceOption = WORKSPACE,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """List the tenant's `long_running` runs, newest first; a call looks at 1,000 runs at most."""
    listed, more = with_context(workspace, tenant, lambda session: _listed(session, limit, after, live))
    lines: list[str] = [Heading(f"{'run':<20}  {'state':<9}  {'started':<20}  {'heard of':<20}  checkpoint, deadline")]
    for one in listed:
        point = one["checkpoint"]
        reached = f"{point['checkpoint']} {point['verdict']}" if point else "none"
        lines.append(
            f"{one['run_id']:<20}  {one['state']:<9}  {_moment(one['started_at_us']):<20}  "
            f"{_moment(one['heartbeat_at_us']):<20}  {reached}, {_moment(one['deadline_us'])}"
        )
        lines.append(f"  {displayed(one['session_id'] or 'no session id')}, {displayed(one['request_id'])}")
    lines = lines if listed else ["there are no sessions" if more is None else "there are no sessions among these"]
    if more is not None:
        lines.append(f"more: contextos sessions --after {more}")
    give({"sessions": listed, "next_after": more}, lines, as_json=as_json)
    return 0


async def _listed(
    session: CommandContext, limit: int, after: int, live: bool
) -> tuple[list[dict[str, Any]], int | None]:
    """A page of the sessions, and the number after which the next one begins."""
    listed: list[dict[str, Any]] = []
    looked, last = 0, 0
    async for line, ended in newest_runs(session.store, after):
        if live and ended:
            continue
        if len(listed) == limit or looked == MAX_LOOKED:
            return listed, last
        looked, last = looked + 1, line.seq
        received = _body(next(iter(await session.store.read(line.key, limit=1)), None))
        if received and received["answer"]["request"]["mode"] == "long_running":
            one = await _told(session, line.key, received["answer"])
            listed += [one] if not (live and one["ended"]) else []
    return listed, None


async def _told(session: CommandContext, run_id: str, received: dict[str, Any]) -> dict[str, Any]:
    """One session from its journal; its heartbeat from the document beside the lease."""
    from contextos.queries.run_view import run_view

    entries = await session.store.read(run_id)
    view = run_view(session.tenant_id, run_id, entries)
    points = [entry for entry in entries if entry.kind == "session.checkpointed"]
    point = _body(points[-1]) if points else None
    beats = await session.store.scan("heartbeats", key=run_id)
    request = received["request"]
    return {
        "run_id": run_id,
        "session_id": request.get("session_id"),
        "request_id": request["request_id"],
        "state": view.state,
        "ended": view.ended,
        "waits_for": view.waiting["for"] if view.waiting else None,
        "started_at_us": entries[0].at_us,
        "heartbeat_at_us": _json(beats[0].body)["at_us"] if beats else None,
        "checkpoint": point and {**point, "at_us": points[-1].at_us},
        "deadline_us": point["deadline_us"] if point else _before_admission(entries[0].at_us, received),
    }


def _before_admission(began_us: int, received: dict[str, Any]) -> int | None:
    """The deadline as the request and the deployment have it; its pack may still lower it."""
    stated = (
        received["request"].get("runtime", {}).get("max_session_duration_ms"),
        received["deployment"]["limits"].get("max_session_duration_ms"),
    )
    known = [limit for limit in stated if limit is not None]
    return began_us + min(known) * 1_000 if stated[1] is not None else None


def _moment(at_us: int | None) -> str:
    from datetime import UTC, datetime

    return "-" if at_us is None else datetime.fromtimestamp(at_us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _body(entry: Any) -> Any:
    return None if entry is None or entry.body is None else _json(entry.body)


def _json(raw: bytes) -> Any:
    import orjson

    return orjson.loads(raw)
