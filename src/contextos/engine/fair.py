"""Which run is driven next: in order of arrival within a tenant, and tenants in turn."""

from __future__ import annotations

from collections import Counter

Run = tuple[str, str]


class FairQueue:
    """Runs that wait to be driven, each once. No tenant gets more than `per_tenant` of the drives in progress."""

    def __init__(self, *, per_tenant: int) -> None:
        self.per_tenant = per_tenant
        self._waiting: dict[str, dict[str, None]] = {}
        self._driven: Counter[str] = Counter()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def put(self, run: Run) -> None:
        tenant, run_id = run
        runs = self._waiting.setdefault(tenant, {})
        if run_id not in runs:
            runs[run_id] = None
            self._length += 1

    def withdraw(self, run: Run) -> None:
        """`run` waits no longer; nothing happens if it does not wait."""
        tenant, run_id = run
        runs = self._waiting.get(tenant, {})
        if run_id in runs:
            del runs[run_id]
            self._length -= 1
            if not runs:
                del self._waiting[tenant]

    def take(self) -> Run | None:
        """The next run, from now on in progress; None if none waits or every waiting tenant has its share."""
        tenant = next((tenant for tenant in self._waiting if self._driven[tenant] < self.per_tenant), None)
        if tenant is None:
            return None
        runs = self._waiting.pop(tenant)
        run_id = next(iter(runs))
        del runs[run_id]
        if runs:
            # Behind the others: tenants take turns.
            self._waiting[tenant] = runs
        self._length -= 1
        self._driven[tenant] += 1
        return tenant, run_id

    def done(self, run: Run) -> None:
        """The drive of `run` is over."""
        tenant, _ = run
        self._driven[tenant] -= 1
        if self._driven[tenant] == 0:
            del self._driven[tenant]
