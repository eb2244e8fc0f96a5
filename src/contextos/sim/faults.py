"""What may go wrong, and whether it does, by the seed. Each seed has its own weather: some faults, some rates."""

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
)
"""Faults by name: of store, directory and graph, then on the way to the shop, last those of a process."""

PAYMENT_FAULTS: Final = frozenset(
    {"adapter_unavailable", "reply_lost", "request_lost", "late_delivery", "duplicate", "slow", "garbled"}
)
HOSTS: Final = frozenset({"crash", "zombie", "stall", "clock_back", "clock_ahead"})
MAX_AHEAD_US: Final = 1_000_000
"""How far the clock of a process may be ahead of the true time: what a synchronised clock stays within."""

RATES: Final = (0.002, 0.01, 0.04)
HOST_RATES: Final = (0.001, 0.004, 0.012)
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
"""Where a run may stand, and how likely it is struck there: the fewer runs come there, the likelier."""


class Faults:
    """Decides by the seed. `on` ends the bad weather; `struck` counts what happened."""

    def __init__(self, chance: Random, *, calm: bool = False) -> None:
        self._chance, self._calm = chance, calm
        self._seen: set[str] = set()
        self.on = True
        self.struck: Counter[str] = Counter()
        self.rates: dict[str, float] = {}
        for kind in FAULT_KINDS:
            likely = CHANCE_OF_PAYMENT_KIND if kind in PAYMENT_FAULTS else CHANCE_OF_KIND
            enabled, rate = not calm and chance.random() < likely, chance.randrange(3)
            rates = PAYMENT_RATES if kind in PAYMENT_FAULTS else HOST_RATES if kind in HOSTS else RATES
            self.rates[kind] = rates[rate] if enabled else 0.0

    def strikes(self, kind: str, weight: int = 1) -> bool:
        """Whether this fault happens here and now, `weight` times as likely as elsewhere."""
        if not self.on or not self.rates[kind] or self._chance.random() >= self.rates[kind] * weight:
            return False
        self.struck[kind] += 1
        return True

    def strikes_at(self, kind: str, place: str) -> bool:
        """Whether this fault happens here for where a run stands; only the first time that the world comes here.

        So a place to which few runs come, as between two attempts of a call, is not left to what strikes everywhere.
        """
        here = f"{kind} {place}"
        if self._calm or not self.on or place not in CRASH_RATES or here in self._seen:
            return False
        self._seen.add(here)
        if self._chance.random() >= CRASH_RATES[place]:
            return False
        self.struck[here] += 1
        return True

    def between(self, low: int, high: int) -> int:
        """A duration or a count, both ends inclusive."""
        return self._chance.randint(low, high)

    def likely(self, chance: float) -> bool:
        """A choice that is no fault."""
        return self._chance.random() < chance
