"""Loops at rest: a run that waits for a person keeps its loop where it stands, and goes on from there when it is woken.

Only memory is saved here, never truth: whatever is not kept, or is not as it was left, is derived again from the
journal, to the same end.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.journal import Rest
from contextos.trust.journal.ledger import RunJournal

MAX_SUSPENDED: Final = 256
MAX_SUSPENDED_BYTES: Final = 16 << 20
"""Of journal; a loop takes several times that in memory."""


class ResumableLoop(Generator[Any, Any, Any]):
    """Awaited, it drives a loop on: to its next `Rest`, which it gives, or to its end. Any event loop may drive it.

    All else is between the loop and the event loop, in both directions (PEP 380).
    """

    def __init__(self, loop: Coroutine[Any, Any, Any]) -> None:
        self._loop = loop

    def __await__(self) -> ResumableLoop:
        return self

    def send(self, value: Any, /) -> Any:
        return _passed_on(self._loop.send(value))

    def throw(self, *error: Any) -> Any:
        return _passed_on(self._loop.throw(*error))


def _passed_on(asked: Any) -> Any:
    if isinstance(asked, Rest):
        raise StopIteration(asked)
    return asked


@dataclass(frozen=True, slots=True)
class SuspendedRun:
    """A loop at rest, its journal, and the deployment as it was then: where that is another, the loop is not kept.

    `beats` says that the run is `long_running`, so that whoever drives it beats.
    """

    drive: ResumableLoop
    journal: RunJournal
    outside: tuple[Any, ...]
    beats: bool


class SuspendedRuns:
    """Suspended loops by run: at most `MAX_SUSPENDED`, with journals up to `MAX_SUSPENDED_BYTES`, oldest out first.

    May be used from any thread.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[SuspendedRun, int]] = {}

    def keep(self, run: tuple[str, str], resting: SuspendedRun) -> None:
        self._kept[run] = (resting, sum(len(entry.body or b"") for entry in resting.journal.entries))
        # Each of these steps is whole in itself; what another thread does between them only makes more room.
        while (kept := list(self._kept.items())) and self._too_many([size for _, (_, size) in kept]):
            self._kept.pop(kept[0][0], None)

    def take(self, run: tuple[str, str]) -> SuspendedRun | None:
        return self._kept.pop(run, (None, 0))[0]

    def clear(self) -> None:
        self._kept.clear()

    @staticmethod
    def _too_many(sizes: list[int]) -> bool:
        return len(sizes) > MAX_SUSPENDED or sum(sizes) > MAX_SUSPENDED_BYTES
