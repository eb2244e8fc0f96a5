"""A tenant's runs as a list: newest first, in pages, each run with its state and what it waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contextos.contracts.documents.operations import OPERATIONS
from contextos.contracts.documents.runs import BLOCKED_RUNS
from contextos.contracts.entries.reading import read_body
from contextos.deployment.queries.checked_run import CheckedRun, read_checked
from contextos.deployment.queries.decisions import checked_decision
from contextos.deployment.queries.run_index import newest_runs, waiting_runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contextos.contracts.journal import Entry
    from contextos.contracts.ports.outside import Keys
    from contextos.contracts.ports.storage import Store
    from contextos.deployment.queries.run_view import RunView

ERASED_TEXT = "(erased)"
UNREADABLE_TEXT = "(unreadable)"


@dataclass(frozen=True, slots=True)
class ListedRun:
    """One run of a list. `number` is the number of its line in the tenant's index; it is also the page cursor.

    `status` is where its decision stands, or None if the record was erased. `waits_for` is `approval`, `settlement`,
    `slot`, `engine`, or `operation` where the run waits for an operation that the run `blocked_by` has. `began_at_us`
    is Unix time in microseconds. If the request was erased, `request_id` and `intent` are `(erased)`, and
    `(unreadable)` if the run cannot be read. `fault` says what about it does not verify; None if it does.
    """

    number: int
    run_id: str
    state: str
    status: str | None
    request_id: str
    intent: str
    began_at_us: int
    waits_for: str | None
    blocked_by: str | None
    fault: str | None


@dataclass(frozen=True, slots=True)
class RunPage:
    """Return a page of the tenant's runs, newest first: at most `limit`, with a number below `after` (0: from the
    newest).
    """

    runs: Sequence[ListedRun]
    next_after: int | None


async def list_runs(store: Store, tenant_id: str, keys: Keys, *, limit: int, after: int = 0) -> RunPage:
    """Return a page of the tenant's runs, newest first, with a number below `after` (0: from the newest).

    Raises:
        ChainBroken: an entry of the index that was read is missing, moved or changed.
    """
    listed: list[ListedRun] = []
    async for line, _ in newest_runs(store, tenant_id, after):
        if len(listed) == limit:
            return RunPage(listed, listed[-1].number)
        listed.append(await _listed_run(store, line, await read_checked(store, tenant_id, keys, line.key), keys))
    return RunPage(listed, None)


async def list_waiting_runs(store: Store, tenant_id: str, keys: Keys, *, limit: int, after: int = 0) -> RunPage:
    """Return a page of the runs that wait for a person or for an operation of another run, newest first, with a number
    below `after` (0: from the newest). A run that does not verify is in it too. Raises as `list_runs`.
    """
    listed: list[ListedRun] = []
    async for line in waiting_runs(store, tenant_id, after):
        if len(listed) == limit:
            return RunPage(listed, listed[-1].number)
        one = await _listed_run(store, line, await read_checked(store, tenant_id, keys, line.key), keys)
        if one.fault or one.waits_for not in (None, "engine"):
            listed.append(one)
    return RunPage(listed, None)


async def _listed_run(store: Store, line: Entry, run: CheckedRun, keys: Keys) -> ListedRun:
    view = run.view()
    blocking = await blocked_by(store, view)
    nothing: dict[str, Any] = {}
    request = run.told(lambda: _request(run.entries), nothing)
    decision, fault = await checked_decision(store, run, keys)
    untold = ERASED_TEXT if run.entries and run.entries[0].body is None else UNREADABLE_TEXT
    return ListedRun(
        number=line.seq,
        run_id=line.key,
        state=view.state,
        status=decision.status,
        request_id=run.told(lambda: str(request["request_id"]), untold) if request else untold,
        intent=run.told(lambda: str(request["input"]["intent"]), untold) if request else untold,
        began_at_us=line.at_us,
        waits_for=view.waiting["for"] if view.waiting else "operation" if blocking else None,
        blocked_by=blocking,
        fault=fault,
    )


async def blocked_by(store: Store, view: RunView) -> str | None:
    """Return the run that has the operation for which this one waited when it was driven last; None once that is
    settled.
    """
    if view.ended or view.waiting:
        return None
    blocked = await BLOCKED_RUNS.one(store, view.run_id)
    operation = await OPERATIONS.one(store, blocked.body.operation) if blocked else None
    if operation is None or operation.body.state != "claimed" or operation.body.run_id == view.run_id:
        return None
    return operation.body.run_id


def _request(entries: Sequence[Entry]) -> dict[str, Any]:
    """The recorded request of a run; empty if it was erased."""
    received = read_body(entries[0]) if entries else None
    return received["request"] if received is not None else {}
