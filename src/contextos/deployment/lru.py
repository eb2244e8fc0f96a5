"""A cache of the most recently used tenants. It is bounded, because a caller can name any tenant."""

from __future__ import annotations

from collections import OrderedDict, deque
from contextlib import suppress
from typing import Final, TypeVar

V = TypeVar("V")

MAX_RECENT_TENANTS: Final = 65_536
"""The most tenants whose heads are published: far more than the tenants that start a run between two publications."""
PUBLICATIONS: Final = 10
"""A tenant's heads are published this many times after its last use by this process."""


def keep_recent(table: OrderedDict[str, V], tenant_id: str, value: V, limit: int) -> V:
    """Return the tenant's cached value, or cache `value`; make it the most recent and drop the oldest over `limit`.

    Several threads can call this at once; a cached tenant is never missing in between.
    """
    kept = table.setdefault(tenant_id, value)
    # Another thread can have dropped the tenant in between.
    with suppress(KeyError):
        table.move_to_end(tenant_id)
    if len(table) > limit:
        table.popitem(last=False)
    return kept


class RecentTenants:
    """The tenants that this process used since their journal heads were last published (see `PUBLICATIONS`)."""

    def __init__(self) -> None:
        self._names: deque[OrderedDict[str, None]] = deque([OrderedDict()], maxlen=PUBLICATIONS)

    def note(self, tenant_id: str) -> None:
        """Record that this process used the tenant."""
        keep_recent(self._names[0], tenant_id, None, MAX_RECENT_TENANTS)

    def names(self) -> tuple[str, ...]:
        """Return the recent tenants, sorted."""
        return tuple(sorted(set().union(*self._names)))

    def heads_published(self) -> None:
        """Record that the signed journal heads of all recent tenants were published."""
        self._names.appendleft(OrderedDict())
