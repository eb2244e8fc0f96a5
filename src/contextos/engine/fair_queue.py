"""`FairQueue`: which run is driven next. Tenants take turns; within a tenant, runs that yielded go first."""

from __future__ import annotations

from collections import Counter

RunKey = tuple[str, str]


class FairQueue:
    """Runs that wait to be driven, each once. No tenant has more than `per_tenant` drives in progress."""

    def __init__(self, *, per_tenant: int) -> None:
        self.per_tenant = per_tenant
        self._waiting: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
        self._driven: Counter[str] = Counter()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def waits(self, tenant: str) -> bool:
        """Whether a run of `tenant` waits."""
        return tenant in self._waiting

    def put(self, run: RunKey) -> None:
        self._put(run, 1)

    def put_back(self, run: RunKey) -> None:
        """Queue a run that yielded its turn and has its answer, ahead of its tenant's runs that came by `put`."""
        self._put(run, 0)

    def _put(self, run: RunKey, line: int) -> None:
        tenant, run_id = run
        lines = self._waiting.setdefault(tenant, ({}, {}))
        if run_id not in lines[0] and run_id not in lines[1]:
            lines[line][run_id] = None
            self._length += 1

    def withdraw(self, run: RunKey) -> None:
        """Remove `run` from the queue, if it waits."""
        tenant, run_id = run
        for line in (lines := self._waiting.get(tenant, ())):
            if run_id in line:
                del line[run_id]
                self._length -= 1
        if lines and not any(lines):
            del self._waiting[tenant]

    def take(self) -> RunKey | None:
        """Take the next run, which is then in progress; None if none waits or every waiting tenant has its share."""
        tenant = next((tenant for tenant in self._waiting if self._driven[tenant] < self.per_tenant), None)
        if tenant is None:
            return None
        lines = self._waiting.pop(tenant)
        line = lines[0] or lines[1]
        run_id = next(iter(line))
        del line[run_id]
        if any(lines):
            # To the end: tenants take turns.
            self._waiting[tenant] = lines
        self._length -= 1
        self._driven[tenant] += 1
        return tenant, run_id

    def done(self, run: RunKey) -> None:
        """The drive of `run` is over."""
        tenant, _ = run
        self._driven[tenant] -= 1
        if self._driven[tenant] == 0:
            del self._driven[tenant]
