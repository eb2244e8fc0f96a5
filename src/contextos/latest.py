"""What is kept of the latest so many tenants: any caller may name another, and no process grows with their number."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

V = TypeVar("V")


def keep(table: OrderedDict[str, V], tenant_id: str, value: V, most: int) -> V:
    """Keep it as the latest; the one that nobody asked for longest leaves. Each step holds for several threads."""
    table.pop(tenant_id, None)
    table[tenant_id] = value
    if len(table) > most:
        table.popitem(last=False)
    return value
