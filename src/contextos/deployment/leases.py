"""Leases and heartbeats: who drives a run, and whether that process is still alive.

A lease is renewed by commits, and a tool call can take longer than a lease is valid. So the lease of a driver that
sends heartbeats states how long the driver can be silent, and each heartbeat extends that time. When it is over, the
driver counts as dead, even if its lease is not over; before that it counts as alive, even if its lease is over. Only
the version of the lease decides who can append (ADR 0004), so a driver that wrongly counts as dead is fenced off.

A run that is blocked by another run's operation is driven again after waits that grow. The process that settles the
operation wakes the blocked run at once. It finds every blocked run, because a run can state what blocks it only while
the operation is claimed and not settled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from contextos.contracts.documents.collection import StoredDocument, find_documents
from contextos.contracts.documents.operations import OPERATIONS
from contextos.contracts.documents.runs import (
    BLOCKED_BY,
    BLOCKED_RUNS,
    HEARTBEATS,
    LEASES,
    BlockedRun,
    Heartbeat,
    Lease,
)
from contextos.contracts.entries.kinds import UNSIGNED_KINDS
from contextos.contracts.journal import CLOCK_MARGIN_US, Batch, Entry, Parked, Write
from contextos.contracts.ports.storage import Store, Stores
from contextos.deployment.ports import Ports
from contextos.deployment.queries.run_view import run_view
from contextos.errors import Conflict, ContextOSError

HEARTBEATS_PER_TTL: Final = 3

DrivenRunKey = tuple[str, str]


async def held_until_us(store: Store, lease: StoredDocument[Lease], alive: Callable[[str], bool], now_us: int) -> int:
    """Return when this lease stops keeping others from its run (Unix microseconds); 0 if its owner is known to be
    dead. `alive` returns whether an owner's process can exist.
    """
    if not alive(lease.body.owner):
        return 0
    body, at_us = lease.body, lease.body.at_us
    # Clocks can differ by more than a short lease.
    valid_us = max(body.until_us - at_us, CLOCK_MARGIN_US)
    until_us = body.until_us if at_us - now_us <= valid_us else 0
    if body.silent_until_us is not None:
        until_us = _valid_until_us(at_us, body.silent_until_us, now_us)
        heartbeat = await HEARTBEATS.one(store, lease.key)
        if heartbeat and heartbeat.body.owner == body.owner:
            until_us = max(until_us, _valid_until_us(heartbeat.body.at_us, heartbeat.body.until_us, now_us))
    return until_us


async def wake_if_answered(ports: Ports, store: Store, run_id: str, entries: Sequence[Entry]) -> None:
    """Make a run due whose last entry is an answer. The answer may have been appended without a wake-up."""
    if entries[-1].kind not in UNSIGNED_KINDS:
        return
    # Read again: the run can have gone on since it was read, and a run that has ended would be due for ever.
    entries, _, _, lease_row = await store.read_run(run_id)
    if entries and entries[-1].kind in UNSIGNED_KINDS:
        fence = LEASES.check(run_id, LEASES.read(lease_row).version if lease_row else 0)
        with suppress(Conflict):
            await store.commit(Batch(run=run_id, writes=(fence,), wake_at_us=ports.clock.now_us()))


async def blocking_writes(store: Store, run_id: str, parked: Parked) -> tuple[Write, ...] | None:
    """Return the writes that state which operation of another run this run waits for; None if it waits for none. Their
    commit fails if that operation was settled meanwhile.
    """
    if parked.operation is None:
        return None
    operation, version = parked.operation
    blocked, key = BlockedRun(operation), f"{operation}/{run_id}"
    documents = await find_documents(store, BLOCKED_RUNS.place(run_id), BLOCKED_BY.place(key))
    stored, writes = documents.one(BLOCKED_RUNS, run_id), [OPERATIONS.check(operation, version)]
    if stored is None or stored.body != blocked:
        writes.append(BLOCKED_RUNS.write(run_id, stored.version if stored else 0, blocked))
    if not documents.has(BLOCKED_BY, key):
        writes.append(BLOCKED_BY.write(key, 0, blocked))
    return tuple(writes)


async def wake_blocked(ports: Ports, tenant_id: str, operation: str) -> None:
    """Make the runs due that wait for this operation. A run that cannot be woken looks again by itself, later."""
    store = ports.stores.tenant(tenant_id)
    with suppress(ContextOSError):
        async for keys in BLOCKED_BY.key_pages(store, prefix=f"{operation}/"):
            for key in keys:
                with suppress(ContextOSError):
                    await _wake_run(ports, tenant_id, key.removeprefix(f"{operation}/"), operation)


async def _wake_run(ports: Ports, tenant_id: str, run_id: str, operation: str) -> None:
    """Make a run due, if it still waits for this operation and nobody drives it."""
    store = ports.stores.tenant(tenant_id)
    blocked = await BLOCKED_RUNS.one(store, run_id)
    entries, _, _, lease_row = await store.read_run(run_id)
    lease, view = LEASES.read(lease_row) if lease_row else None, run_view(tenant_id, run_id, entries)
    if blocked is None or blocked.body.operation != operation or lease is None or view.ended or view.waiting:
        return
    if not lease.body.until_us:
        fence = LEASES.check(run_id, lease.version)
        await store.commit(Batch(run=run_id, writes=(fence,), wake_at_us=ports.clock.now_us()))


def _valid_until_us(at_us: int, until_us: int, now_us: int) -> int:
    """Return when a sign of life given at `at_us` expires; 0 if it lies further in the future than its own validity.

    Such a sign was given before a clock was set back. Clocks can differ by less than the validity.
    """
    return until_us if at_us - now_us <= until_us - at_us else 0


class Heartbeats:
    """The `long_running` runs that this process drives now, and the time of the last heartbeat (sign of life) of
    each.

    The caller calls `send` at least every third of the TTL: an engine does so beside its sweeps. If `send` is never
    called, a driver counts as alive for as long as its lease. Can be used from any thread.
    """

    def __init__(self, ttl_us: int, lease_ttl_us: int) -> None:
        self._ttl_us, self._lease_ttl_us = ttl_us, lease_ttl_us
        self._driven: dict[DrivenRunKey, int] = {}
        self._sent_at_us = -ttl_us

    def begins(self, run: DrivenRunKey, now_us: int) -> None:
        """Record that this process begins to drive the run. Commits of the run count as heartbeats."""
        self._driven[run] = now_us

    def ends(self, run: DrivenRunKey) -> None:
        """Record that this process no longer drives the run."""
        self._driven.pop(run, None)

    def silence_us(self, now_us: int) -> int:
        """Return how long this process can be silent before others take its runs over, in µs: the TTL, or 0 without
        heartbeats.
        """
        return self._ttl_us if now_us - self._sent_at_us < self._ttl_us else 0

    async def send(self, stores: Stores, owner: str, now_us: int) -> None:
        """Store a heartbeat for each run whose last one is at least a third of the TTL old. Raises `Unavailable`."""
        self._sent_at_us = now_us
        for run, last_us in list(self._driven.items()):
            if now_us < last_us or HEARTBEATS_PER_TTL * (now_us - last_us) >= self._ttl_us:
                await self._send(stores.tenant(run[0]), run[1], owner, now_us)
                if run in self._driven:
                    self._driven[run] = now_us

    async def _send(self, store: Store, run_id: str, owner: str, now_us: int) -> None:
        lease = await LEASES.one(store, run_id)
        if lease is None or lease.body.owner != owner or not lease.body.until_us:
            return
        stored = await HEARTBEATS.one(store, run_id)
        heartbeat = Heartbeat(owner, now_us, now_us + self._ttl_us)
        # Only while the lease is unchanged: a newer version belongs to another driver, or is a commit of this driver.
        writes = (
            LEASES.check(run_id, lease.version),
            HEARTBEATS.write(
                run_id,
                stored.version if stored else 0,
                heartbeat,
                not_before_us=now_us - CLOCK_MARGIN_US,
                not_after_us=heartbeat.until_us,
            ),
        )
        with suppress(Conflict):
            await store.commit(Batch(run=run_id, writes=writes, wake_at_us=now_us + self._lease_ttl_us))
