"""`PostgresClaims`: the port `Claims` on PostgreSQL, which workers on any number of machines share.

A claim is the column `worker` of a run's row, so it needs no second record and is in every backup of the store. One
statement makes the whole exchange: the worker's sign of life, the runs that it gives back, and the runs that it takes.
The same connection listens on the channel that commits of due runs notify. Behind a pooler no notification arrives, and
workers find runs only when they ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from contextos.contracts.journal import CLOCK_MARGIN_US
from contextos.contracts.ports.claims import Claimed, ClaimedRun, ClaimLimits
from contextos.store.postgres.connections import FAULTS, Connection, connect_postgres, postgres_error, terminate

if TYPE_CHECKING:
    from contextos.contracts.ports.outside import Clock

CHANNEL: Final = "contextos_due"
HEARD_WITHIN_S: Final = 2.0
ANSWERED_WITHIN_S: Final = 5.0
"""The longest wait for an answer, in seconds. After more, the worker would count as dead before it asks on another
connection."""
_CLAIM: Final = (
    "SELECT server_us, taken_tenants, taken_runs, kept_tenants, kept_runs, dead, next_in_us, next_after"
    " FROM contextos.claim_runs($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"
)
_NOTIFY: Final = f"NOTIFY {CHANNEL}"


class PostgresClaims:
    """The claims of one worker. Call everything on one event loop, one `exchange` at a time."""

    def __init__(self, url: str, worker: str, clock: Clock, limits: ClaimLimits) -> None:
        self._url, self._worker, self._clock, self._limits = url, worker, clock, limits
        self._connection: Connection | None = None
        self._on_due: Callable[[], None] | None = None
        self._states_held = True
        self._next_after = ""
        self._heard_event = asyncio.Event()
        self.is_notified = False

    def listen(self, due: Callable[[], None]) -> None:
        self._on_due = due

    async def exchange(
        self, given_back: Mapping[ClaimedRun, int | None], held: Sequence[ClaimedRun], *, free: int
    ) -> Claimed:
        row = await self._exchange_row(self._limits.alive_ms * 1000, list(given_back.items()), held, free)
        now_us = self._clock.now_us()
        taken_runs = tuple(zip(row["taken_tenants"], row["taken_runs"], strict=True))
        self._next_after = row["next_after"]
        next_in_us = row["next_in_us"]
        return Claimed(
            taken=taken_runs,
            kept=tuple(zip(row["kept_tenants"], row["kept_runs"], strict=True)),
            dead=frozenset(row["dead"]),
            next_in_us=next_in_us,
            clock_off_us=now_us - row["server_us"],
        )

    async def leave(self, given_back: Mapping[ClaimedRun, int | None]) -> None:
        try:
            await self._exchange_row(0, list(given_back.items()), [], 0)
        finally:
            if self._connection is not None:
                terminate(self._connection)

    async def _exchange_row(
        self, alive_us: int, given_back: Sequence[tuple[ClaimedRun, int | None]], held: Sequence[ClaimedRun], free: int
    ) -> Any:
        limits = self._limits
        try:
            connection = await self._listening_connection()
            # An answer can have been lost with the connection before, or a commit that was not synced with its server.
            states_held, self._states_held = self._states_held, True
            row = await connection.fetchrow(
                _CLAIM,
                self._worker,
                self._clock.now_us(),
                alive_us,
                CLOCK_MARGIN_US,
                [tenant_id for (tenant_id, _), _ in given_back],
                [run_id for (_, run_id), _ in given_back],
                [delay_us for _, delay_us in given_back],
                [tenant_id for tenant_id, _ in held] if states_held else None,
                [run_id for _, run_id in held] if states_held else None,
                free,
                limits.per_tenant,
                limits.per_tenant_in_all,
                limits.rate_per_tenant,
                limits.rate_period_ms * 1000,
                self._next_after,
                timeout=ANSWERED_WITHIN_S,
            )
            self._states_held = False
            return row
        except FAULTS as fault:
            if self._connection is not None:
                terminate(self._connection)
            raise postgres_error(fault) from fault

    async def _listening_connection(self) -> Connection:
        """Return the connection that listens. A notification from another session shows whether notifications arrive.

        No statement of this connection runs meanwhile: a pooler passes on the notifications that come during one.
        """
        if self._connection is None or self._connection.is_closed():
            self.is_notified, self._states_held = False, True
            self._heard_event.clear()
            self._connection = await connect_postgres(self._url)
            await self._connection.add_listener(CHANNEL, self._on_notification)
            notifier = await connect_postgres(self._url)
            try:
                await notifier.execute(_NOTIFY)
            finally:
                terminate(notifier)
            with suppress(TimeoutError):
                self.is_notified = await asyncio.wait_for(self._heard_event.wait(), HEARD_WITHIN_S)
        return self._connection

    def _on_notification(self, _connection: Any, _pid: int, _channel: str, _payload: object) -> None:
        self._heard_event.set()
        if self._on_due is not None:
            self._on_due()
