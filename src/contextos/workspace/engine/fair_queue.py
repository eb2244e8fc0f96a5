"""`FairQueue`: chooses the next run. The tenant that used least goes first; within a tenant, runs that yielded do.

A tenant is quiet if it has at most one run here, waiting or driven. Each step of a quiet tenant counts an eighth, so
its requests are answered one after the other as on an idle machine, however many tenants have a queue. This is only a
weight: the other tenants get a part of the steps, however many tenants are quiet.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

RunKey = tuple[str, str]

QUIET_WEIGHT: Final = 8
"""A quiet tenant can take this many times the steps of another one before it loses its priority."""
RECENT_STEPS: Final = 512
"""Steps of all tenants that are counted; past this number every tenant's count is halved."""


class FairQueue:
    """The runs that wait to be driven, each once. At most `per_tenant` runs of a tenant are driven at the same time."""

    def __init__(self, *, per_tenant: int) -> None:
        self.per_tenant = per_tenant
        self._waiting: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
        self._driven: Counter[str] = Counter()
        self._steps: Counter[str] = Counter()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def waits(self, tenant: str) -> bool:
        """Return whether a run of `tenant` waits to be driven."""
        return tenant in self._waiting

    def used(self, tenant: str) -> float:
        """Return how many steps `tenant` took lately; for a quiet tenant, the number divided by `QUIET_WEIGHT`."""
        return self._steps[tenant] / (QUIET_WEIGHT if self._is_quiet(tenant) else 1)

    def _is_quiet(self, tenant_id: str) -> bool:
        return self._driven[tenant_id] + sum(len(queue) for queue in self._waiting.get(tenant_id, ())) <= 1

    def count_step(self, tenant: str) -> None:
        """Count a step of a run of `tenant`."""
        self._steps[tenant] += 1
        if self._steps.total() > RECENT_STEPS:
            self._steps = Counter({tenant_id: steps // 2 for tenant_id, steps in self._steps.items() if steps > 1})

    def put(self, run: RunKey) -> None:
        self._enqueue(run, 1)

    def put_back(self, run: RunKey) -> None:
        """Queue a run whose adapter has answered, ahead of its tenant's runs that have not begun."""
        self._enqueue(run, 0)

    def _enqueue(self, run: RunKey, index: int) -> None:
        tenant_id, run_id = run
        queues = self._waiting.setdefault(tenant_id, ({}, {}))
        if run_id not in queues[0] and run_id not in queues[1]:
            queues[index][run_id] = None
            self._length += 1

    def withdraw(self, run: RunKey) -> None:
        """Remove `run` from the queue, if it waits."""
        tenant_id, run_id = run
        for queue in (queues := self._waiting.get(tenant_id, ())):
            if run_id in queue:
                del queue[run_id]
                self._length -= 1
        if queues and not any(queues):
            del self._waiting[tenant_id]

    def take(self, *, quiet: bool = False) -> RunKey | None:
        """Take the next run to drive; None if no run waits, or each waiting tenant has `per_tenant` runs in progress.
        With `quiet`, take only a run of a quiet tenant. Of tenants that used the same number of steps, the tenant that
        waits for longest goes first.
        """
        candidates = [
            tenant_id
            for tenant_id in self._waiting
            if self._driven[tenant_id] < self.per_tenant and (not quiet or self._is_quiet(tenant_id))
        ]
        if not candidates:
            return None
        tenant_id = min(candidates, key=self.used)
        queues = self._waiting.pop(tenant_id)
        queue = queues[0] or queues[1]
        run_id = next(iter(queue))
        del queue[run_id]
        if any(queues):
            # The tenant goes to the end of the order: tenants take turns.
            self._waiting[tenant_id] = queues
        self._length -= 1
        self._driven[tenant_id] += 1
        return tenant_id, run_id

    def done(self, run: RunKey) -> None:
        """Record that `run` is no longer being driven."""
        tenant_id, _ = run
        self._driven[tenant_id] -= 1
        if self._driven[tenant_id] == 0:
            del self._driven[tenant_id]
