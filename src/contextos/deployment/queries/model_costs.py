"""Add up what calls of models cost, by profile and operation, in one run or in the runs that began in a period.

A run that does not verify, or whose entries about models were erased, is not added up; it is named instead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from contextos.contracts.entries.kinds import account_of
from contextos.contracts.entries.reading import logged
from contextos.deployment.queries.checked_run import read_checked
from contextos.deployment.queries.run_index import newest_runs

if TYPE_CHECKING:
    from contextos.contracts.entries.account import RoutedCall
    from contextos.contracts.ports.outside import Keys
    from contextos.contracts.ports.storage import Store

MAX_LINES: Final = 10_000
"""The most runs whose time is looked at for one page. Those that began outside of the period count too."""
MAX_SKEW_US: Final = 3_600_000_000
"""How far the clocks of two processes can be apart (1 hour): a later line of the index can have an earlier time."""
ERASED_RUN: Final = "entries about its models were erased"

CostPlace = tuple[str, str]
"""A profile and an operation."""


@dataclass(slots=True)
class ModelCosts:
    """The cost of the calls of one profile for one operation. `taken` of the `calls` ended in an answer that was used.
    `unpriced` calls count with the reserved cost, because no usage with a price was reported; so do `open` calls, which
    have no answer yet. `tokens` are the billed tokens, by kind.
    """

    runs: int = 0
    calls: int = 0
    taken: int = 0
    unpriced: int = 0
    open: int = 0
    cost_units: int = 0
    tokens: dict[str, int] = field(default_factory=dict)

    def add(self, call: RoutedCall) -> None:
        """Add one call."""
        self.calls += 1
        self.taken += call.outcome == "answered"
        self.unpriced += call.is_unpriced
        self.open += call.outcome is None
        self.cost_units += call.cost_units
        for kind, count in call.tokens.items():
            self.tokens[kind] = self.tokens.get(kind, 0) + count


@dataclass(slots=True)
class CostsOfRuns:
    """The cost of the `runs_read` runs of a page. `unread` says, by run, why a run is not included. `next_after` is the
    number behind which the next page begins, or None if all runs of the period were read.
    """

    costs: dict[CostPlace, ModelCosts] = field(default_factory=dict)
    runs_read: int = 0
    unread: dict[str, str] = field(default_factory=dict)
    next_after: int | None = None


def add_calls(calls: Iterable[RoutedCall], costs: dict[CostPlace, ModelCosts]) -> Mapping[CostPlace, ModelCosts]:
    """Add the calls of one run to `costs`, and return `costs`. A route without a call adds nothing."""
    places = set[CostPlace]()
    for call in calls:
        if call.profile is not None:
            place = (call.profile, call.operation)
            costs.setdefault(place, ModelCosts()).add(call)
            places.add(place)
    for place in places:
        costs[place].runs += 1
    return costs


async def read_costs(
    store: Store,
    tenant_id: str,
    keys: Keys,
    pause: Callable[[int], Awaitable[None]],
    *,
    began_from_us: int = 0,
    began_before_us: int | None = None,
    limit: int,
    after: int = 0,
) -> CostsOfRuns:
    """Read at most `limit` runs that began in the period (Unix microseconds), newest first, behind the number `after`.

    Raises:
        ChainBroken: an entry of the index that was read is missing, moved or changed.
    """
    page, looked_at, last = CostsOfRuns(), 0, 0
    async for index_entry in newest_runs(store, tenant_id, after):
        if index_entry.at_us < began_from_us - MAX_SKEW_US:
            return page
        if looked_at == MAX_LINES or page.runs_read + len(page.unread) == limit:
            page.next_after = last
            return page
        looked_at, last = looked_at + 1, index_entry.seq
        if index_entry.at_us < began_from_us or (began_before_us is not None and index_entry.at_us >= began_before_us):
            continue
        # Reading and verifying one run does not yield, so other tasks get a turn between two runs.
        await pause(0)
        run = await read_checked(store, tenant_id, keys, index_entry.key)
        if run.fault is not None:
            page.unread[index_entry.key] = run.fault
        elif any(entry.body is None and entry.kind.startswith("model.") for entry in run.entries):
            page.unread[index_entry.key] = ERASED_RUN
        else:
            page.runs_read += 1
            add_calls(account_of(index_entry.key, logged(run.entries)).routes.values(), page.costs)
    return page
