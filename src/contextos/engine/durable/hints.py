"""Hints: notes in memory that a run must be driven, until the run is in the shared queue. Bounded, one per run.

A lost hint costs time and never a run: the sweep of due runs finds the run.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from contextos.engine.fair_queue import RunKey

MOST_STALE: Final = 32
"""Replaced entries that the heap can hold before it is rebuilt."""


@dataclass(frozen=True, slots=True)
class Hint:
    """A note in memory that a run must be driven at `wake_us` (Unix microseconds; 0: now). It can be lost without
    harm.

    A `weak` hint comes from a sweep and is dropped if the run is in the queue already. `post_us` is when to queue the
    run (Unix µs), `tries` how often that failed.
    """

    wake_us: int = 0
    weak: bool = False
    retry: bool = False
    post_us: int = 0
    tries: int = 0


class Hints:
    """The hints (notes that a run must be driven) that are not in the queue yet. If there are `bound` of them, a new
    one is dropped.
    """

    def __init__(self, *, bound: int) -> None:
        self._bound = bound
        self._hints: dict[RunKey, Hint] = {}
        self._order: list[tuple[int, int, RunKey]] = []
        self._count = count()

    def __len__(self) -> int:
        return len(self._hints)

    def get(self, run: RunKey) -> Hint | None:
        return self._hints.get(run)

    def put(self, run: RunKey, hint: Hint) -> None:
        """Keep the hint. Two hints of one run become one: the earlier time, and weak only if both are."""
        known = self._hints.get(run)
        if known is None and len(self._hints) >= self._bound:
            return
        if known is not None:
            weak = known.weak and hint.weak
            # A later wake does not change when the run is queued: the known hint can be waiting for another try.
            is_later = known.wake_us < hint.wake_us
            post_us = min(known.post_us, hint.post_us)
            hint = replace(known, weak=weak) if is_later else replace(hint, weak=weak, post_us=post_us)
        self._hints[run] = hint
        heapq.heappush(self._order, (hint.post_us, next(self._count), run))
        if len(self._order) > 2 * len(self._hints) + MOST_STALE:
            self._order = [(hint.post_us, next(self._count), run) for run, hint in self._hints.items()]
            heapq.heapify(self._order)

    def take(self, now_us: int, *, limit: int) -> list[tuple[RunKey, Hint]]:
        """Remove and return at most `limit` hints whose time has come, earliest first."""
        taken: list[tuple[RunKey, Hint]] = []
        while self._order and self._order[0][0] <= now_us and len(taken) < limit:
            post_us, _, run = heapq.heappop(self._order)
            if (hint := self._hints.get(run)) is not None and hint.post_us == post_us:
                del self._hints[run]
                taken.append((run, hint))
        return taken

    def next_us(self) -> int | None:
        """Return when the next hint has to be queued (Unix µs), or None."""
        return self._order[0][0] if self._order else None
