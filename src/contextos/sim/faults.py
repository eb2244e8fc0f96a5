"""What may go wrong, and whether it does, by the seed. Each seed has its own weather: some faults, some rates."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final

KINDS: Final = (
    "store_unavailable", "store_unknown", "store_conflict", "store_read", "disk_full", "directory", "graph",
    "adapter_unavailable", "reply_lost", "request_lost", "late_delivery", "duplicate", "slow", "garbled",
    "crash", "crash_before_commit", "crash_after_commit", "zombie", "stall", "clock_back", "clock_ahead",
)  # fmt: skip
"""Faults by name: of store, directory and graph, then on the way to the shop, last those of a process."""

PAYMENTS: Final = frozenset({
    "adapter_unavailable", "reply_lost", "request_lost", "late_delivery", "duplicate", "slow", "garbled",
})  # fmt: skip
HOSTS: Final = frozenset({"crash", "zombie", "stall", "clock_back", "clock_ahead"})
MAX_AHEAD_US: Final = 1_000_000
"""How far the clock of a process may be ahead of the true time: what a synchronised clock stays within."""

RATES: Final = (0.002, 0.01, 0.04)
HOST_RATES: Final = (0.001, 0.004, 0.012)
PAYMENT_RATES: Final = (0.1, 0.2, 0.4)
CHANCE_OF_KIND: Final = 0.35
CHANCE_OF_PAYMENT_KIND: Final = 0.5


class Faults:
    """Decides by the seed. `on` ends the bad weather; `struck` counts what happened."""

    def __init__(self, chance: Random, *, calm: bool = False) -> None:
        self._chance = chance
        self.on = True
        self.struck: Counter[str] = Counter()
        self.rates: dict[str, float] = {}
        for kind in KINDS:
            likely = CHANCE_OF_PAYMENT_KIND if kind in PAYMENTS else CHANCE_OF_KIND
            enabled, rate = not calm and chance.random() < likely, chance.randrange(3)
            rates = PAYMENT_RATES if kind in PAYMENTS else HOST_RATES if kind in HOSTS else RATES
            self.rates[kind] = rates[rate] if enabled else 0.0

    def strikes(self, kind: str, weight: int = 1) -> bool:
        """Whether this fault happens here and now, `weight` times as likely as elsewhere."""
        if not self.on or not self.rates[kind] or self._chance.random() >= self.rates[kind] * weight:
            return False
        self.struck[kind] += 1
        return True

    def between(self, low: int, high: int) -> int:
        """A duration or a count, both ends inclusive."""
        return self._chance.randint(low, high)

    def likely(self, chance: float) -> bool:
        """A choice that is no fault."""
        return self._chance.random() < chance
