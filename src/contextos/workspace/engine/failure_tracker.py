"""`FailureTracker`: decides what happens to a run whose drive failed for a reason that does not pass by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from contextos.deployment.dead_letters import add, failure_cause, journal_length
from contextos.telemetry.logs import error_fields
from contextos.workspace.engine.fair_queue import RunKey

if TYPE_CHECKING:
    from contextos.contracts.ports.outside import Clock
    from contextos.contracts.ports.storage import Stores

ResultT = TypeVar("ResultT")
OnFailure = Callable[[str, str, BaseException], None]
"""Called with the tenant, the run and what its drive raised."""
SWEEP: Final[RunKey] = ("", "sweep")
HEARTBEAT: Final[RunKey] = ("", "heartbeat")
WITNESS: Final[RunKey] = ("", "witness")
"""The three keys in `failures` that are not runs: a failed sweep, failed heartbeats, a failed publication of heads."""
MAX_KEPT: Final = 1000
_MESSAGES: Final = {SWEEP: "sweep failed", HEARTBEAT: "heartbeats failed", WITNESS: "witness publish failed"}
_LOG: Final = logging.getLogger("contextos.workspace.engine")
FIRST_RETRY_MS: Final = 50
LAST_RETRY_MS: Final = 60_000


class FailureTracker:
    """Counts the failed drives of runs in this process, and decides which runs become dead letters (are driven no
    more).

    A run becomes a dead letter when it fails twice over the same journal: the second drive had nothing new to work
    with. `failures` keeps the last failure of each run, for at most 1000 runs, oldest first out.
    """

    def __init__(self, stores: Stores, clock: Clock, on_failure: OnFailure | None) -> None:
        self.failures: dict[RunKey, BaseException] = {}
        self._stores, self._clock, self._on_failure = stores, clock, on_failure
        self._seen_lengths: dict[RunKey, tuple[int, int]] = {}

    def report(self, run: RunKey, fault: BaseException, *, what: str | None = None) -> None:
        """Keep a run's failure, and log and report it once for as long as it stays the same. `what` replaces the
        message in the log.

        The event loop calls the log and `on_failure`. So an exception that one of them raises goes to the loop's
        exception handler, and stops no heartbeat, sweep or drive.
        """
        previous = self.failures.pop(run, None)
        _keep_bounded(self.failures, run, fault)
        if previous is not None and repr(previous) == repr(fault):
            return
        loop = asyncio.get_running_loop()
        message, fields = what or _MESSAGES.get(run, "drive failed"), _run_fields(run) | error_fields(fault)
        loop.call_soon(partial(_LOG.warning, message, extra=fields))
        if self._on_failure is not None:
            loop.call_soon(self._on_failure, *run, fault)

    def forget(self, run: RunKey) -> None:
        """Forget the failures of a run that succeeded or was submitted again."""
        self.failures.pop(run, None)
        self._seen_lengths.pop(run, None)

    async def retry_delay_ms(self, run: RunKey, fault: BaseException) -> int | None:
        """Return after how many milliseconds a failed run is to be driven again, or None. Raises `Unavailable`.

        None means that the run is a dead letter now (is driven no more), has ended, or does not exist.
        """
        tenant_id, run_id = run
        store = self._stores.tenant(tenant_id)
        seen_length, tries = self._seen_lengths.pop(run, (0, 0))
        if await add(store, run_id, failure_cause(fault), self._clock.now_us(), seen=seen_length):
            log_dead_letter(run, tries + 1)
            return None
        entries = await journal_length(store, run_id)
        if not entries:
            return None
        _keep_bounded(self._seen_lengths, run, (entries, tries + 1))
        return min(FIRST_RETRY_MS << min(tries, 12), LAST_RETRY_MS)


def log_dead_letter(run: RunKey, attempt: int | None = None) -> None:
    """Log that a run became a dead letter (is driven no more) after `attempt` failed drives in this process."""
    _LOG.error("dead letter added", extra=_run_fields(run) | {"attempt": attempt})


def _run_fields(run: RunKey) -> dict[str, str | None]:
    tenant_id, run_id = run
    return {"tenant": tenant_id, "run": run_id} if tenant_id else {}


def _keep_bounded(table: dict[RunKey, ResultT], run: RunKey, value: ResultT) -> None:
    table[run] = value
    if len(table) > MAX_KEPT:
        del table[next(iter(table))]
