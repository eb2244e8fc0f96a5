"""What is kept of the latest so many tenants: any caller may name another, and no process grows with their number."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import TypeVar

V = TypeVar("V")


def keep(table: OrderedDict[str, V], tenant_id: str, value: V, most: int) -> V:
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
