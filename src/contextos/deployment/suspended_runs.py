"""Suspended runs: a run that waits for a person keeps its coroutine in memory, and continues there when it is woken.

This is a cache. A run that is not kept, or whose inputs changed, is rebuilt from the journal, with the same result.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.journal import Entry, Rest
from contextos.trust.approvals.gate_approvals import CheckQuestion
from contextos.trust.journal.ledger import RunJournal

MAX_SUSPENDED: Final = 256
MAX_SUSPENDED_BYTES: Final = 16 << 20
"""The most bytes of all kept journals. A loop takes several times its journal in memory."""


class ResumableLoop(Generator[Any, Any, Any]):
    """An awaitable that runs a coroutine until its next `Rest` (a wait for a person), which it returns, or to its
    end.

    All other values pass between the coroutine and the event loop unchanged (PEP 380).
    """

    def __init__(self, loop: Coroutine[Any, Any, Any]) -> None:
        self._loop = loop

    def __await__(self) -> ResumableLoop:
        return self

    def send(self, value: Any, /) -> Any:
        return _stop_at_rest(self._loop.send(value))

    def throw(self, *error: Any) -> Any:
        return _stop_at_rest(self._loop.throw(*error))


def _stop_at_rest(value: Any) -> Any:
    if isinstance(value, Rest):
        raise StopIteration(value)
    return value


@dataclass(slots=True)
class SuspendedRun:
    """A run that waits in memory: its suspended coroutine, its journal, and the deployment's inputs that it uses. If
    those inputs changed, the coroutine is dropped and the run is rebuilt from the journal.

    `sends_heartbeats` is true for a `long_running` run. `acts` is how many acts of operators the tenant had when the
    agent of a session spoke last, or None. `trace_id` is that of the request. The last of `checks` checks whether the
    question on which the run waits still holds.
    """

    drive: ResumableLoop
    journal: RunJournal
    inputs: tuple[Any, ...]
    sends_heartbeats: bool
    acts: int | None
    trace_id: str
    checks: list[CheckQuestion]


class SuspendedRuns:
    """Runs that wait in memory: at most `MAX_SUSPENDED`, with journals up to `MAX_SUSPENDED_BYTES`; the oldest is
    dropped.

    Can be used from any thread.
    """

    def __init__(self) -> None:
        self._suspended: dict[tuple[str, str], tuple[SuspendedRun, int]] = {}

    def keep(self, run: tuple[str, str], suspended: SuspendedRun) -> None:
        self._suspended[run] = (suspended, suspended.journal.stored_bytes())
        # Each step is atomic; another thread between two steps can only make more room.
        while (runs := list(self._suspended.items())) and self._is_over_limit([size for _, (_, size) in runs]):
            self._suspended.pop(runs[0][0], None)

    def take(self, run: tuple[str, str]) -> SuspendedRun | None:
        return self._suspended.pop(run, (None, 0))[0]

    def at_question(
        self, run: tuple[str, str], entries: Sequence[Entry], inputs: tuple[Any, ...]
    ) -> CheckQuestion | None:
        """Return the check of whether the question at the end of these entries still holds; None unless the run waits
        on it in this process with these inputs.
        """
        kept, _ = self._suspended.get(run, (None, 0))
        if kept is None or not kept.checks or kept.inputs != inputs or [*kept.journal.entries] != [*entries]:
            return None
        return kept.checks[-1]

    def clear(self) -> None:
        self._suspended.clear()

    @staticmethod
    def _is_over_limit(sizes: list[int]) -> bool:
        return len(sizes) > MAX_SUSPENDED or sum(sizes) > MAX_SUSPENDED_BYTES
