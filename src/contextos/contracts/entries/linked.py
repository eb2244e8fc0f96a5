"""Keeps the streams that this process linked or verified, so that it verifies no stored entry twice.

The kept entries are bounded in bytes. They count only for stored entries with exactly the same content. `verify`, an
export and a replay compute every hash of a run anew all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from contextos.contracts.journal import Entry

V = TypeVar("V")

KEPT_BYTES: Final = 32 << 20
"""The size of a table, in bytes."""
ASKED_BYTES: Final = 4_096
"""The bytes that count for a key of some short texts, so that a table of small values is bounded too."""
_ENTRY_BYTES: Final = 800
"""The bytes of an entry without its body, about."""


class RecentlyUsed(Generic[V]):
    """A table of values of about `most` bytes, or `most` values of size 1. Values not used for longest go first.

    It has two halves: a value that is used moves to the new half, and a full new half replaces the old half. Threads
    need no lock: a value that a thread loses is computed again.
    """

    def __init__(self, most: int = 1024) -> None:
        self._half, self._bytes = most // 2, 0
        self._new: dict[Any, tuple[V, int]] = {}
        self._old: dict[Any, tuple[V, int]] = {}

    def get(self, key: Any) -> V | None:
        item = self._new.get(key)
        if item is None and (item := self._old.get(key)) is not None:
            self.keep(key, *item)
        return item[0] if item is not None else None

    def keep(self, key: Any, value: V, size: int = 1) -> V:
        """Keep a value of `size` bytes (by default it counts as 1), and return it."""
        if self._bytes + size > self._half:
            self._old, self._new, self._bytes = self._new, {}, 0
        self._bytes += size - self._new.get(key, (None, 0))[1]
        self._new[key] = value, size
        return value

    def drop(self, key: Any) -> None:
        self._new.pop(key, None)
        self._old.pop(key, None)


_LINKED: Final[RecentlyUsed[tuple[Entry, ...]]] = RecentlyUsed(KEPT_BYTES)
"""The entries of a stream from its first, by tenant and stream."""

_body_of: Final = attrgetter("body")


def know(tenant: str, stream: str, entries: Sequence[Entry]) -> None:
    """Note entries of a stream, from its first on, that this process linked itself or whose chain it verified."""
    _LINKED.keep((tenant, stream), tuple(entries), entries_size(entries))


def known(tenant: str, stream: str, entries: Sequence[Entry], before: int = 0) -> int:
    """Return how many of these entries, which follow the first `before` entries of the stream, are known to be linked.
    It is 0 if one of them differs from the noted part of the stream.
    """
    noted = (_LINKED.get((tenant, stream)) or ())[before : before + len(entries)]
    return len(noted) if noted == tuple(entries[: len(noted)]) else 0


def forget(tenant: str, stream: str) -> None:
    """Drop the noted entries of a stream, because one of its entries was erased."""
    _LINKED.drop((tenant, stream))


def entries_size(entries: Sequence[Entry]) -> int:
    """Return how many bytes these entries take, about."""
    return sum(map(len, filter(None, map(_body_of, entries)))) + _ENTRY_BYTES * len(entries)
