"""Hints that a run must be driven, until they are enqueued: bounded, one per run, in memory only.

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
    """Drive a run at `wake_us` (0: now). Unix time in microseconds.

    A `weak` hint comes from a sweep and yields to any workflow of the run; a sweep yields to a `retry`. `post_us` is
    when to enqueue it (Unix µs), `tries` how often that failed.
    """

    wake_us: int = 0
    weak: bool = False
    retry: bool = False
    post_us: int = 0
    tries: int = 0


class Hints:
    """The hints that wait to be enqueued. Past `bound`, a new hint is dropped."""

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
        """Keep the hint. Two hints of one run are merged: the earlier wake, and weak only if both are."""
        known = self._hints.get(run)
        if known is None and len(self._hints) >= self._bound:
            return
        if known is not None:
            if known.wake_us < hint.wake_us:
                hint = replace(known, weak=known.weak and hint.weak)
            else:
                hint = replace(hint, weak=known.weak and hint.weak)
            hint = replace(hint, post_us=min(known.post_us, hint.post_us))
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
        """When the next hint is to be enqueued (Unix µs), or None."""
        return self._order[0][0] if self._order else None
