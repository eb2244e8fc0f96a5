"""The faults that a seed injects. Each seed has its own fault schedule: some kinds, each at its own rate."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final

FAULT_KINDS: Final = (
    "store_unavailable",
    "store_unknown",
    "store_conflict",
    "store_read",
    "disk_full",
    "directory",
    "graph",
    "adapter_unavailable",
    "reply_lost",
    "request_lost",
    "late_delivery",
    "duplicate",
    "slow",
    "garbled",
    "crash",
    "zombie",
    "stall",
    "clock_back",
    "clock_ahead",
    "outage",
)
"""Fault kinds: first of store, directory and graph, then of the calls to the shop, last of a process."""

PAYMENT_FAULTS: Final = frozenset(
    {"adapter_unavailable", "reply_lost", "request_lost", "late_delivery", "duplicate", "slow", "garbled"}
)
PROCESS_FAULTS: Final = frozenset({"crash", "zombie", "stall", "clock_back", "clock_ahead"})
MAX_AHEAD_US: Final = 1_000_000
"""The most that the clock of a process is ahead of the true time: the bound of a synchronised clock."""

OUTAGES_US: Final = (100_000, 5_000_000, 600_000_000)
"""How long the payments service can be away."""
OUTAGE_RATES: Final = (0.1, 0.2, 0.4)

RATES: Final = (0.002, 0.01, 0.04)
PROCESS_RATES: Final = (0.001, 0.004, 0.012)
PAYMENT_RATES: Final = (0.1, 0.2, 0.4)
CHANCE_OF_KIND: Final = 0.35
CHANCE_OF_PAYMENT_KIND: Final = 0.5

CRASH_RATES: Final = {
    "run.received": 0.04,
    "session.checkpointed": 0.05,
    "tool.dispatching read": 0.07,
    "tool.dispatching send": 0.06,
    "payments.call": 0.1,
    "payments.call keyed": 0.7,
    "payments.reply": 0.15,
    "tool.returned returned": 0.1,
    "tool.returned not_sent": 0.25,
    "tool.dispatching send again": 0.6,
    "tool.returned unknown": 0.12,
    "tool.dispatching reconcile again": 0.2,
    "payments.lookup": 0.3,
    "payments.looked_up": 0.3,
    "effect.settled": 0.2,
    "record.revised": 0.04,
    "approval.answered": 0.06,
    "approval.expired": 0.25,
    "run.cancelled": 0.2,
    "run.resumed": 0.08,
    "run.ended": 0.02,
}
"""Crash probability by the place that a run has reached. Rarely reached places have high rates."""


class Faults:
    """Decides, from the seed, which faults occur. `on = False` ends all faults; `struck` counts those that occurred."""

    def __init__(self, rng: Random, *, disabled: bool = False) -> None:
        self._rng, self._disabled = rng, disabled
        self._seen: set[str] = set()
        self.on = True
        self.struck: Counter[str] = Counter()
        self.rates: dict[str, float] = {}
        for kind in FAULT_KINDS:
            likely = CHANCE_OF_PAYMENT_KIND if kind in PAYMENT_FAULTS else CHANCE_OF_KIND
            enabled, rate = not disabled and rng.random() < likely, rng.randrange(3)
            rates = PAYMENT_RATES if kind in PAYMENT_FAULTS else PROCESS_RATES if kind in PROCESS_FAULTS else RATES
            rates = OUTAGE_RATES if kind == "outage" else rates
            self.rates[kind] = rates[rate] if enabled else 0.0

    def strikes(self, kind: str, weight: int = 1) -> bool:
        """Return whether this kind of fault occurs now, with `weight` times its usual probability."""
        if not self.on or not self.rates[kind] or self._rng.random() >= self.rates[kind] * weight:
            return False
        self.struck[kind] += 1
        return True

    def strikes_at(self, kind: str, place: str) -> bool:
        """Return whether this fault occurs at `place`. It is drawn only the first time that a run reaches the place.

        Places that few runs reach, such as the one between two attempts of a call, are hit often enough this way.
        """
        here = f"{kind} {place}"
        if self._disabled or not self.on or place not in CRASH_RATES or here in self._seen:
            return False
        self._seen.add(here)
        if self._rng.random() >= CRASH_RATES[place]:
            return False
        self.struck[here] += 1
        return True

    def between(self, low: int, high: int) -> int:
        """Draw a random whole number from `low` to `high`, both included, such as a duration or a count."""
        return self._rng.randint(low, high)

    def likely(self, probability: float) -> bool:
        """Return True with this probability (0 to 1), for a random choice that is not a fault."""
        return self._rng.random() < probability
