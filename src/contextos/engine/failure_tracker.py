"""What becomes of a run whose drive failed for a reason that will not go away by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from contextos.engine.fair_queue import RunKey
from contextos.operations.dead_letters import add, failure_cause, journal_length

if TYPE_CHECKING:
    from contextos.contracts.ports.outside import Clock
    from contextos.contracts.ports.storage import Stores

ResultT = TypeVar("ResultT")
OnFailure = Callable[[str, str, BaseException], None]
SWEEP: Final[RunKey] = ("", "sweep")
BEAT: Final[RunKey] = ("", "heartbeat")
"""Under these names `failures` keeps what stopped a sweep or a beat."""
MAX_KEPT: Final = 1000
FIRST_RETRY_MS: Final = 50
LAST_RETRY_MS: Final = 60_000


class FailureTracker:
    """The failures of this process, and who goes onto the dead-letter list.

    A run goes there when it failed, and failed again over a journal that had not changed since: then the second drive
    has seen all that anybody had said. `failures` keeps the newest of each run, at most 1000.
    """

    def __init__(self, stores: Stores, clock: Clock, on_failure: OnFailure | None) -> None:
        self.failures: dict[RunKey, BaseException] = {}
        self._stores, self._clock, self._on_failure = stores, clock, on_failure
        self._seen: dict[RunKey, tuple[int, int]] = {}

    def report(self, run: RunKey, fault: BaseException) -> None:
        """Keep a failure and say it, once for as long as it stays the same.

        It is said from the event loop: who fails at hearing it stops no beat, sweep or drive, and the loop's handler
        of exceptions is told.
        """
        known = self.failures.pop(run, None)
        _keep(self.failures, run, fault)
        if self._on_failure is not None and (known is None or repr(known) != repr(fault)):
            asyncio.get_running_loop().call_soon(self._on_failure, *run, fault)

    def forget(self, run: RunKey) -> None:
        """It went well, or is to be tried again from the start."""
        self.failures.pop(run, None)
        self._seen.pop(run, None)

    async def judge(self, run: RunKey, fault: BaseException) -> int | None:
        """In how many milliseconds to drive it again; None: it rests, has ended, or is no run. Raises `Unavailable`."""
        tenant_id, run_id = run
        store = self._stores.tenant(tenant_id)
        seen, tries = self._seen.pop(run, (0, 0))
        if await add(store, run_id, failure_cause(fault), self._clock.now_us(), seen=seen):
            return None
        entries = await journal_length(store, run_id)
        if not entries:
            return None
        _keep(self._seen, run, (entries, tries + 1))
        return min(FIRST_RETRY_MS << min(tries, 12), LAST_RETRY_MS)


def _keep(table: dict[RunKey, ResultT], run: RunKey, value: ResultT) -> None:
    table[run] = value
    if len(table) > MAX_KEPT:
        del table[next(iter(table))]
