"""A tenant's sessions: its `long_running` runs, how far each is and when its driver last sent a heartbeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from contextos.contracts.documents.runs import HEARTBEATS
from contextos.queries.run_index import newest_runs
from contextos.queries.run_view import run_view

if TYPE_CHECKING:
    from contextos.contracts.journal import Entry
    from contextos.contracts.ports.storage import Store

MAX_RUNS_READ: Final = 1000
"""Runs that one call reads at most, because most of them can be of other modes."""


@dataclass(frozen=True, slots=True)
class ListedSession:
    """One `long_running` run. Times are Unix time in microseconds.

    `heartbeat_at_us` is None before the first heartbeat. `checkpoint` is the body of the last checkpoint and its time.
    `deadline_us` is None where nothing limits the session.
    """

    run_id: str
    session_id: str | None
    request_id: str
    state: str
    ended: bool
    waits_for: str | None
    started_at_us: int
    heartbeat_at_us: int | None
    checkpoint: Mapping[str, Any] | None
    deadline_us: int | None


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Sessions of one page, and the number after which the next page begins (None: there is none)."""

    sessions: Sequence[ListedSession]
    next_after: int | None


async def list_sessions(
    store: Store, tenant_id: str, *, limit: int, after: int = 0, live_only: bool = False
) -> SessionPage:
    """A page of the tenant's sessions, newest first, from before number `after` of the index (0: from the newest).

    A page ends after `limit` sessions or after `MAX_RUNS_READ` runs, so it can be empty and not the last.
    """
    listed: list[ListedSession] = []
    runs_read, last = 0, 0
    async for line, ended in newest_runs(store, after):
        if live_only and ended:
            continue
        if len(listed) == limit or runs_read == MAX_RUNS_READ:
            return SessionPage(listed, last)
        runs_read, last = runs_read + 1, line.seq
        received = _body(next(iter(await store.read(line.key, limit=1)), None))
        if received and received["answer"]["request"]["mode"] == "long_running":
            one = await _listed_session(store, tenant_id, line.key, received["answer"])
            listed += [one] if not (live_only and one.ended) else []
    return SessionPage(listed, None)


async def _listed_session(store: Store, tenant_id: str, run_id: str, received: Mapping[str, Any]) -> ListedSession:
    """The session from the run's journal, with the heartbeat from its own document."""
    entries = await store.read(run_id)
    view = run_view(tenant_id, run_id, entries)
    checkpoints = [entry for entry in entries if entry.kind == "session.checkpointed"]
    checkpoint = _body(checkpoints[-1]) if checkpoints else None
    heartbeat = await HEARTBEATS.one(store, run_id)
    started_at_us = entries[0].at_us
    return ListedSession(
        run_id=run_id,
        session_id=received["request"].get("session_id"),
        request_id=received["request"]["request_id"],
        state=view.state,
        ended=view.ended,
        waits_for=view.waiting["for"] if view.waiting else None,
        started_at_us=started_at_us,
        heartbeat_at_us=heartbeat.body.at_us if heartbeat else None,
        checkpoint=checkpoint and {**checkpoint, "at_us": checkpoints[-1].at_us},
        deadline_us=checkpoint["deadline_us"] if checkpoint else _deadline_before_admission(started_at_us, received),
    )


def _deadline_before_admission(started_at_us: int, received: Mapping[str, Any]) -> int | None:
    """The deadline by the limits of the request and the deployment; the pack can still lower it."""
    of_request = received["request"].get("runtime", {}).get("max_session_duration_ms")
    of_deployment = received["deployment"]["limits"].get("max_session_duration_ms")
    if of_deployment is None:
        return None
    limit_ms: int = of_deployment if of_request is None else min(of_request, of_deployment)
    return started_at_us + limit_ms * 1_000


def _body(entry: Entry | None) -> Any:
    return None if entry is None or entry.body is None else orjson.loads(entry.body)
