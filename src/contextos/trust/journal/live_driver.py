"""`LiveDriver`: the ports and facts with which a journal records after the end of the tape, and the run's lease."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from contextos.contracts.documents.operations import OPERATIONS
from contextos.contracts.documents.runs import LEASES, Lease
from contextos.contracts.journal import CLOCK_MARGIN_US, AgentMessage, Batch, SignedHead, Write
from contextos.contracts.ports.concurrency import Concurrency, Sequential
from contextos.contracts.ports.outside import Clock, Entropy, Keys
from contextos.contracts.ports.storage import Store


@dataclass(slots=True)
class LiveDriver:
    """The ports and facts with which a journal records new entries after the existing entries.

    `lease_version` is the fencing token: the version of the run's lease document that this driver read (0: none).
    `signed` is the last verified signed head. `can_suspend`: the driver handles `Rest`; otherwise a waiting loop ends
    with `Parked`. `silence_us` returns how long (µs) this driver can be silent before others take it for dead; 0 or
    None means that only its lease counts. `make_way` is awaited after a commit so that other runs can go first, except
    when the run ends, waits or is about to send a call. `concurrency` runs the calls of `record_all`. `deaths` is how
    many drivers before this one died in a row without a new entry. `free_us` is when the lease of the driver before
    this one is over (Unix microseconds; 0: it was released, or that driver is known to be dead). `holds`: this driver
    has the run's lease. `is_alone` returns whether this process drives no other run now; None means that it may.
    `behind_us`: how far the clock is behind the latest time on record in the tenant, in microseconds. `read_us` is the
    latest reading of the clock since the last commit (Unix microseconds). `message`: the next message of a session's
    agent, or None. `settled` is awaited with the key of each operation that this driver no longer has.
    """

    store: Store
    clock: Clock
    entropy: Entropy
    keys: Keys
    owner: str
    lease_ttl_us: int
    lease_version: int = 0
    cause: str = "recovery"
    can_suspend: bool = False
    signed: SignedHead | None = None
    silence_us: Callable[[], int] | None = None
    make_way: Callable[[], Awaitable[None]] | None = None
    is_alone: Callable[[], bool] | None = None
    settled: Callable[[str], Awaitable[None]] | None = None
    concurrency: Concurrency = field(default_factory=Sequential)
    deaths: int = 0
    free_us: int = 0
    holds: bool = False
    behind_us: int = 0
    read_us: int = 0
    message: AgentMessage | None = None

    def take_message(self) -> AgentMessage | None:
        """Return the next message of the session's agent, and forget it. Return None if none waits."""
        message, self.message = self.message, None
        return message

    def time_us(self, last_us: int = 0) -> int:
        """Return the time that counts for the run (Unix microseconds): the clock's, moved on to the latest time on
        record if it is behind, and never before `last_us`.

        Leases, and deadlines and retries of sent calls, go by the clock alone, as in every other process.
        """
        now_us = self.clock.now_us()
        if now_us > self.read_us:
            self.read_us = now_us
        now_us += self.behind_us
        return now_us if now_us > last_us else last_us

    def follows(self, deaths: int, free_us: int, behind_us: int, last_us: int) -> None:
        """Set what is known before this drive; `last_us` is the time of the run's last entry, or 0."""
        # The times of new entries start from the later of both.
        behind_us = max(behind_us, last_us - self.clock.now_us()) if behind_us else 0
        self.deaths, self.free_us, self.behind_us, self.read_us = deaths, free_us, behind_us, 0

    def resumed(self) -> dict[str, Any]:
        """Return the answer of the `run.resumed` entry with which this drive begins."""
        return {"cause": self.cause} | ({"behind_us": self.behind_us} if self.behind_us else {})

    @staticmethod
    def stated_behind_us(resumed: Any) -> int:
        """Return how far (µs) a `run.resumed` answer says that its clock was behind; 0 if it states no number."""
        behind_us = resumed.get("behind_us") if isinstance(resumed, dict) else None
        return behind_us if type(behind_us) is int else 0

    def lease(self, run_id: str, *, letting_go: bool) -> Write:
        """Build the write that renews this driver's lease on a run, or releases it.

        The store decides by its own clock. The write fails if this clock is more than `CLOCK_MARGIN_US` ahead of it, or
        was ahead when it was read for an entry of this commit. It also fails if the lease would be over already, and
        while the lease of the driver before is not over.
        """
        now_us, lease = self.clock.now_us(), Lease(self.owner, 0)
        if not letting_go:
            silence_us = self.silence_us() if self.silence_us else 0
            silent_us = now_us + silence_us if silence_us else None
            lease = Lease(self.owner, now_us + self.lease_ttl_us, now_us, silent_us, self.deaths)
        over_us = now_us + max(self.lease_ttl_us, CLOCK_MARGIN_US)
        begin_us = max(max(now_us, self.read_us) - CLOCK_MARGIN_US, self.free_us)
        return LEASES.write(run_id, self.lease_version, lease, not_after_us=over_us, not_before_us=begin_us)

    def may_block(self) -> bool:
        """Return whether a commit can block the event loop, because no other run is driven on it."""
        return self.is_alone is not None and self.is_alone()

    async def commit(self, batch: Batch, *, letting_go: bool) -> None:
        """Commit a batch that includes the write of this driver's lease."""
        await self.store.commit(batch)
        self.lease_version += 1
        self.holds, self.read_us = not letting_go, 0

    async def tell_settled(self, batch: Batch) -> None:
        """Report the operations that this driver no longer has since this batch was committed."""
        if self.settled is None:
            return
        for operation, claim in OPERATIONS.written(batch.writes):
            if claim.state != "claimed":
                await self.settled(operation)

    async def take(self, run_id: str) -> None:
        """Commit the lease alone, before foreign code is called. If that ends this process, the next driver can tell.

        It does not change when the run is due, so that an answer that a person gives meanwhile is not overlooked.
        """
        lease = self.lease(run_id, letting_go=False)
        await self.commit(Batch(run=run_id, writes=(lease,), may_block=self.may_block()), letting_go=False)

    async def release(self, run_id: str, wake_at_us: int | None = None) -> None:
        """Commit the release of the lease alone, if this driver holds it."""
        if self.holds:
            lease = self.lease(run_id, letting_go=True)
            await self.commit(
                Batch(run=run_id, writes=(lease,), wake_at_us=wake_at_us, may_block=self.may_block()), letting_go=True
            )
