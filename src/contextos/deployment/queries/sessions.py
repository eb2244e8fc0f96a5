"""List a tenant's sessions: its `long_running` runs, how far each is and when its driver last sent a heartbeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from contextos.contracts.documents.runs import HEARTBEATS
from contextos.contracts.entries.reading import read_body
from contextos.contracts.entries.terms import LIVE, term
from contextos.contracts.journal import Sought
from contextos.deployment.queries.checked_run import UNREADABLE, CheckedRun, read_checked
from contextos.deployment.queries.run_index import MAX_RUNS_READ, found_runs

if TYPE_CHECKING:
    from contextos.contracts.journal import Entry
    from contextos.contracts.ports.outside import Keys
    from contextos.contracts.ports.storage import Store

_SESSION_TERMS: Final = (term("mode", "long_running"),)


@dataclass(frozen=True, slots=True)
class ListedSession:
    """One session (a `long_running` run) in a list. Times are Unix time in microseconds.

    `heartbeat_at_us` is None before the first heartbeat. `checkpoint` is the body of the last checkpoint and its time.
    `deadline_us` is None if nothing limits the session. `fault` says what about the run does not verify; None if it
    does.
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
    fault: str | None


@dataclass(frozen=True, slots=True)
class SessionPage:
    """One page of sessions (`long_running` runs), and the number after which the next page begins (None: there is
    none).
    """

    sessions: Sequence[ListedSession]
    next_after: int | None


async def list_sessions(
    store: Store, tenant_id: str, keys: Keys, *, limit: int, after: int = 0, live_only: bool = False
) -> SessionPage:
    """Return a page of the tenant's `long_running` runs, newest first, with an index number below `after` (0: all).

    A page ends after `limit` sessions or after `MAX_RUNS_READ` runs, so it can be empty and not the last.

    Raises:
        ChainBroken: an entry of the index that was read is missing, moved or changed.
    """
    sessions: list[ListedSession] = []
    read, last = 0, 0
    search = Sought([(LIVE,), _SESSION_TERMS] if live_only else [_SESSION_TERMS], after)
    async for index_entry in found_runs(store, tenant_id, search):
        if len(sessions) == limit or read == MAX_RUNS_READ:
            return SessionPage(sessions, last)
        read, last = read + 1, index_entry.seq
        run = await read_checked(store, tenant_id, keys, index_entry.key)
        if run.fault or _is_session(run.entries):
            session = await _listed_session(store, run)
            sessions += [session] if session.fault or not (live_only and session.ended) else []
    return SessionPage(sessions, None)


def _is_session(entries: Sequence[Entry]) -> bool:
    """Return whether the request of a run makes it a session; False if the request was erased."""
    body = read_body(entries[0]) if entries and entries[0].body is not None else None
    return body is not None and body["request"]["mode"] == "long_running"


async def _listed_session(store: Store, run: CheckedRun) -> ListedSession:
    """Return the session from the run's journal, with the heartbeat from its own document."""
    view = run.view()
    heartbeat = await HEARTBEATS.one(store, run.run_id)
    session = ListedSession(
        run_id=run.run_id,
        session_id=None,
        request_id=UNREADABLE,
        state=view.state,
        ended=view.ended,
        waits_for=view.waiting["for"] if view.waiting else None,
        started_at_us=run.entries[0].at_us if run.entries else 0,
        heartbeat_at_us=heartbeat.body.at_us if heartbeat else None,
        checkpoint=None,
        deadline_us=None,
        fault=run.fault,
    )
    return run.told(lambda: _with_request(session, run.entries), session)


def _with_request(session: ListedSession, entries: Sequence[Entry]) -> ListedSession:
    """Return the session with what its request and its last checkpoint say."""
    body = read_body(entries[0])
    checkpoints = [entry for entry in entries if entry.kind == "session.checkpointed"]
    checkpoint = read_body(checkpoints[-1]) if checkpoints else None
    limit_us = _deadline_before_admission(session.started_at_us, body)
    return replace(
        session,
        session_id=body["request"].get("session_id"),
        request_id=body["request"]["request_id"],
        checkpoint=checkpoint and {**checkpoint, "at_us": checkpoints[-1].at_us},
        deadline_us=checkpoint["deadline_us"] if checkpoint else limit_us,
    )


def _deadline_before_admission(started_at_us: int, body: Mapping[str, Any]) -> int | None:
    """Return the deadline (Unix µs) by the limits of the request and the deployment; the pack can still lower it."""
    of_request = body["request"].get("runtime", {}).get("max_session_duration_ms")
    of_deployment = body["deployment"]["limits"].get("max_session_duration_ms")
    if of_deployment is None:
        return None
    limit_ms: int = of_deployment if of_request is None else min(of_request, of_deployment)
    return started_at_us + limit_ms * 1_000
