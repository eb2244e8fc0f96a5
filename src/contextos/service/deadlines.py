"""Which questions of a tenant are due first, so that a reader of many reads and verifies only those that it shows.

A process keeps the deadline and the role of each question that it read, until the index has a line about its run. What
is kept only orders and counts: the caller reads a question again before it shows it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from contextos.contracts.journal import INDEX
from contextos.contracts.ports.storage import Store
from contextos.deployment.queries.run_index import MAX_RUNS_READ

PAGE_LINES: Final = 500


class Due(NamedTuple):
    """When the question of a run is due (Unix microseconds), and the role that it asks."""

    deadline_us: int
    role: str


@dataclass(slots=True)
class KeptDeadlines:
    """The questions of one tenant, as of the line `_seq` of its index. A run that waits for something else is None."""

    _seq: int = -1
    _kept: dict[str, Due | None] = field(default_factory=dict)

    async def read(self, store: Store, read: Callable[[str], Awaitable[Due | None]], now_us: int) -> dict[str, Due]:
        """Return the open questions by run. `read` reads the question of a run, and may raise for one: it is then
        asked again the next time. The first `MAX_RUNS_READ` runs that wait are looked at.
        """
        await self._forget_changed(store)
        marked = [run for _, run in await store.waiting(limit=MAX_RUNS_READ)]
        kept, self._kept = self._kept, {}
        for run in marked:
            due = kept.get(run)
            if run not in kept or (due is not None and due.deadline_us <= now_us):
                due = await read(run)
            self._kept[run] = due
        return {run: due for run, due in self._kept.items() if due is not None}

    async def _forget_changed(self, store: Store) -> None:
        length = await store.length(INDEX)
        if self._seq < 0 or length < self._seq:
            # The first look, or one after a restore.
            self._seq, self._kept = length, {}
        while self._seq < length:
            lines = await store.read(INDEX, after=self._seq, limit=PAGE_LINES)
            for line in lines:
                self._kept.pop(line.key, None)
            self._seq = lines[-1].seq if lines else length
