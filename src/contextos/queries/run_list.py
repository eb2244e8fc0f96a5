"""A tenant's runs as a list: newest first, in pages, each run with its state and what it waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from contextos.queries.run_index import newest_runs, waiting_runs
from contextos.queries.run_view import run_view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contextos.contracts.journal import Entry
    from contextos.contracts.ports.storage import Store

ERASED_TEXT = "(erased)"


@dataclass(frozen=True, slots=True)
class ListedRun:
    """One run of a list. `number` is the number of its line in the tenant's index; it is also the page cursor.

    `status` comes from the run's decision record, or is None if there is none. `waits_for` is `approval`, `settlement`,
    `slot` or `engine`. `began_at_us` is Unix time in microseconds. If the request was erased, `request_id` and `intent`
    are `(erased)`.
    """

    number: int
    run_id: str
    state: str
    status: str | None
    request_id: str
    intent: str
    began_at_us: int
    waits_for: str | None


@dataclass(frozen=True, slots=True)
class RunPage:
    """At most the requested number of runs, and the number after which the next page begins (None: there is none)."""

    runs: Sequence[ListedRun]
    next_after: int | None


async def list_runs(store: Store, tenant_id: str, *, limit: int, after: int = 0) -> RunPage:
    """A page of the tenant's runs, newest first, from before number `after` (0: from the newest)."""
    listed: list[ListedRun] = []
    async for line, _ in newest_runs(store, after):
        if len(listed) == limit:
            return RunPage(listed, listed[-1].number)
        listed.append(_listed_run(tenant_id, line, await store.read(line.key)))
    return RunPage(listed, None)


async def list_waiting_runs(store: Store, tenant_id: str, *, limit: int, after: int = 0) -> RunPage:
    """A page of the runs that wait for a person, newest first, from before number `after` (0: from the newest)."""
    listed: list[ListedRun] = []
    async for line in waiting_runs(store, after):
        if len(listed) == limit:
            return RunPage(listed, listed[-1].number)
        one = _listed_run(tenant_id, line, await store.read(line.key))
        if one.waits_for not in (None, "engine"):
            listed.append(one)
    return RunPage(listed, None)


def _listed_run(tenant_id: str, line: Entry, entries: Sequence[Entry]) -> ListedRun:
    view = run_view(tenant_id, line.key, entries)
    received = entries[0].body if entries else None
    request = orjson.loads(received)["answer"]["request"] if received is not None else {}
    return ListedRun(
        number=line.seq,
        run_id=line.key,
        state=view.state,
        status=view.record["status"] if view.record else None,
        request_id=request.get("request_id", ERASED_TEXT),
        intent=request.get("input", {}).get("intent", ERASED_TEXT),
        began_at_us=line.at_us,
        waits_for=view.waiting["for"] if view.waiting else None,
    )
