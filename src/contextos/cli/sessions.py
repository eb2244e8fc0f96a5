"""`sessions`: the long-running runs of a tenant, how far each is and when its driver was last heard of."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from contextos.cli.opening import WORKSPACE, JsonOption, Session, TenantOption, WorkspaceOption, within
from contextos.cli.terminal import Heading, give, safe


def sessions(
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many at most.")] = 20,
    live: Annotated[bool, typer.Option("--live", help="Only those that have not ended.")] = False,
    workspace: WorkspaceOption = WORKSPACE,
    tenant: TenantOption = "",
    as_json: JsonOption = False,
) -> int:
    """List the tenant's `long_running` runs, newest first."""
    listed = within(workspace, tenant, lambda session: _listed(session, limit, live))
    lines: list[str] = [Heading(f"{'run':<20}  {'state':<9}  {'started':<20}  {'heard of':<20}  checkpoint, deadline")]
    for one in listed:
        point = one["checkpoint"]
        reached = f"{point['checkpoint']} {point['verdict']}" if point else "none"
        lines.append(
            f"{one['run_id']:<20}  {one['state']:<9}  {_moment(one['started_at_us']):<20}  "
            f"{_moment(one['heartbeat_at_us']):<20}  {reached}, {_moment(one['deadline_us'])}"
        )
        lines.append(f"  {safe(one['session_id'] or 'no session id')}, {safe(one['request_id'])}")
    give({"sessions": listed}, lines if listed else ["there are no sessions"], as_json=as_json)
    return 0


async def _listed(session: Session, limit: int, live: bool) -> list[dict[str, Any]]:
    from contextos.contracts.journal import INDEX

    listed: list[dict[str, Any]] = []
    for line in reversed(await session.store.read(INDEX)):
        if line.kind != "run.indexed" or len(listed) == limit:
            continue
        received = _body(next(iter(await session.store.read(line.key, limit=1)), None))
        if received and received["answer"]["request"]["mode"] == "long_running":
            one = await _told(session, line.key, received["answer"])
            listed += [one] if not (live and one["ended"]) else []
    return listed


async def _told(session: Session, run_id: str, received: dict[str, Any]) -> dict[str, Any]:
    """One session from its journal; its heartbeat from the document beside the lease."""
    from contextos.views import view_of

    entries = await session.store.read(run_id)
    view = view_of(session.tenant_id, run_id, entries)
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
