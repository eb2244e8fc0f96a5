"""What is kept of the latest so many tenants: any caller may name another, and no process grows with their number."""

from __future__ import annotations

from collections import OrderedDict, deque
from contextlib import suppress
from typing import Final, TypeVar

V = TypeVar("V")

MAX_TENANTS: Final = 65_536
"""Of so many the witness is told: far more than begin a run between two times that it is."""
TELLS: Final = 10
"""So often the witness is told of a tenant after it had nothing more to do with this process."""


def keep_recent(table: OrderedDict[str, V], tenant_id: str, value: V, most: int) -> V:
    """What is kept of a tenant, else `value`, as the latest; the one that nobody asked for longest leaves.

    Each step holds for several threads, and who is known is at no moment missing.
    """
    kept = table.setdefault(tenant_id, value)
    # Another thread may have let it go in between.
    with suppress(KeyError):
        table.move_to_end(tenant_id)
    if len(table) > most:
        table.popitem(last=False)
    return kept


class RecentTenants:
    """The tenants that a process has had to do with since the witness was told `TELLS` times."""

    def __init__(self) -> None:
        self._names: deque[OrderedDict[str, None]] = deque([OrderedDict()], maxlen=TELLS)

    def note(self, tenant_id: str) -> None:
        keep_recent(self._names[0], tenant_id, None, MAX_TENANTS)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(set().union(*self._names)))

    def told(self) -> None:
        """The witness was told of all of them; those that come to rest are named so often and then no more."""
        self._names.appendleft(OrderedDict())
