"""Heartbeats: whoever drives a `long_running` run says beside its lease that it lives.

A lease is renewed by commits, and a tool call may take longer than one. So the lease of a driver that beats says how
long the driver may be silent; a later beat says it anew. Past that the driver is taken for dead, whatever is left of
its lease, and as long as it beats it is not, even if the lease ran out. Who may append is decided by the version of
the lease alone (ADR 0004): a driver that was taken for dead in error is fenced off. What was said further in the
future than it was to count for was said before a clock was put back, and counts for nothing. Source:
contextos-facts.md, section 5, "heartbeat TTL".
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from contextos.contracts.documents.collection import StoredDocument
from contextos.contracts.documents.runs import HEARTBEATS, LEASES, Heartbeat, Lease
from contextos.contracts.journal import Batch
from contextos.contracts.ports.storage import Store, Stores
from contextos.errors import Conflict

BEATS_PER_TTL: Final = 3

Run = tuple[str, str]


async def is_held(store: Store, lease: StoredDocument[Lease], alive: Callable[[str], bool], now_us: int) -> bool:
    """Whether the owner of this lease still drives its run, as far as anybody can tell."""
    held, until_us = lease.body, lease.body.until_us
    if held.silent_until_us is not None:
        # Leases of before do not say when they were given.
        until_us = _counts_until(now_us if held.at_us is None else held.at_us, held.silent_until_us, now_us)
        beat = await HEARTBEATS.one(store, lease.key)
        if beat and beat.body.owner == held.owner:
            until_us = max(until_us, _counts_until(beat.body.at_us, beat.body.until_us, now_us))
    return until_us > now_us and alive(held.owner)


def _counts_until(at_us: int, until_us: int, now_us: int) -> int:
    """Until when a sign of life counts; 0 where a clock was put back since. Clocks may differ by less than the TTL."""
    return until_us if at_us - now_us <= until_us - at_us else 0


class Heartbeats:
    """The `long_running` runs that this process drives now, and when it last beat for each.

    It beats when somebody calls `beat`, at least every third of the TTL: an engine does, beside its sweeps. Where
    nobody does, a driver lives by its leases. May be used from any thread.
    """

    def __init__(self, ttl_us: int, lease_ttl_us: int) -> None:
        self._ttl_us, self._lease_ttl_us = ttl_us, lease_ttl_us
        self._driven: dict[Run, int] = {}
        self._beaten_us = -ttl_us

    def begins(self, run: Run, now_us: int) -> None:
        """A drive of this run begins; what it commits is a sign of life too."""
        self._driven[run] = now_us

    def ends(self, run: Run) -> None:
        """The drive is over."""
        self._driven.pop(run, None)

    def silence_us(self, now_us: int) -> int:
        """How long this process may be silent: the TTL while somebody lets it beat, else 0."""
        return self._ttl_us if now_us - self._beaten_us < self._ttl_us else 0

    async def beat(self, stores: Stores, owner: str, now_us: int) -> None:
        """Beat as `owner` for every run that is due to be beaten for. Raises `Unavailable`."""
        self._beaten_us = now_us
        for run, last_us in list(self._driven.items()):
            if now_us < last_us or BEATS_PER_TTL * (now_us - last_us) >= self._ttl_us:
                await self._beat(stores.tenant(run[0]), run[1], owner, now_us)
                if run in self._driven:
                    self._driven[run] = now_us

    async def _beat(self, store: Store, run_id: str, owner: str, now_us: int) -> None:
        lease = await LEASES.one(store, run_id)
        if lease is None or lease.body.owner != owner or not lease.body.until_us:
            return
        known = await HEARTBEATS.one(store, run_id)
        beat = Heartbeat(owner, now_us, now_us + self._ttl_us)
        # Only while the lease is as it was seen: whoever has another one by now speaks for the run, or has committed.
        writes = (LEASES.check(run_id, lease.version), HEARTBEATS.write(run_id, known.version if known else 0, beat))
        with suppress(Conflict):
            await store.commit(Batch(run=run_id, writes=writes, wake_at_us=now_us + self._lease_ttl_us))


__all__ = ["Heartbeats", "is_held"]
