"""Returns the time that counts for a tenant: the clock's time, or the latest time on record if that is later.

So putting a clock back extends nothing that has a deadline. The step is recorded once in `control`.
Source: docs/design/journal.md, "Signed heads".
"""

from __future__ import annotations

from typing import Protocol

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.entries.bodies import body_fault
from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import CLOCK_MARGIN_US, CONTROL, SALT_BYTES, Batch, Draft, Entry
from contextos.contracts.ports.outside import Clock, Entropy
from contextos.contracts.ports.storage import Stores


class TimePorts(Protocol):
    """The stores and the clock that are compared. `entropy` is for the entry that records a step of the clock."""

    @property
    def stores(self) -> Stores: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def entropy(self) -> Entropy: ...


async def behind_us(ports: TimePorts, tenant_id: str) -> int:
    """Return how far the clock is behind the latest time on record, in microseconds; 0 within `CLOCK_MARGIN_US`, by
    which clocks can differ. Raises as `recorded_now_us`.
    """
    clock_us, latest_us = await _clock_and_latest_us(ports, tenant_id)
    return latest_us - clock_us if latest_us - clock_us > CLOCK_MARGIN_US else 0


async def recorded_now_us(ports: TimePorts, tenant_id: str) -> int:
    """Return the time now (Unix microseconds), which is never before an entry of the tenant's own streams.

    Raises:
        Conflict, Unavailable: the store did not take the entry; call again.
    """
    return max(await _clock_and_latest_us(ports, tenant_id))


async def _clock_and_latest_us(ports: TimePorts, tenant_id: str) -> tuple[int, int]:
    """Return the time of the clock, and the latest on record. Records a clock that is more than `CLOCK_MARGIN_US`
    behind, and records it again when the latest time on record has grown by as much, because runs add to the record.
    """
    store = ports.stores.tenant(tenant_id)
    clock_us, latest_us = ports.clock.now_us(), await store.latest_us()
    if latest_us - clock_us <= CLOCK_MARGIN_US:
        return clock_us, latest_us
    recorded_steps = await store.lines(CONTROL, "clock.went_back")
    if not recorded_steps or _recorded_latest_us(recorded_steps[-1]) + CLOCK_MARGIN_US < latest_us:
        body = canonical({"clock_us": clock_us, "latest_us": latest_us})
        salt = ports.entropy.take(SALT_BYTES)
        draft = Draft("clock.went_back", "clock.went_back", latest_us, "runtime", body, salt)
        await store.commit(Batch(run=CONTROL, shared=((CONTROL, draft),)))
    return clock_us, latest_us


def _recorded_latest_us(line: Entry) -> int:
    """Return the latest time that a recorded step states; 0 for a line that states none. No seal covers the line, so it
    can be any bytes.
    """
    if line.kind != "clock.went_back" or body_fault(CONTROL, "clock.went_back", line.body or b""):
        return 0
    return int(read_body(line)["latest_us"])
