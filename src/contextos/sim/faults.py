"""What may go wrong, and the seeded decision whether it does. Each seed has its own weather: some faults, some rates."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final

KINDS: Final = (
    "store_unavailable", "store_unknown", "store_conflict", "store_read", "disk_full", "directory", "graph",
    "adapter_unavailable", "reply_lost", "request_lost", "late_delivery", "duplicate", "slow", "garbled",
    "crash", "crash_before_commit", "crash_after_commit", "zombie", "stall", "clock_back",
)  # fmt: skip
"""Faults by name. The first eight strike while a port is called, the next six at the payments, the rest hit a process."""

PAYMENTS: Final = frozenset({"adapter_unavailable", "reply_lost", "request_lost", "late_delivery", "duplicate", "slow", "garbled"})
HOSTS: Final = frozenset({"crash", "zombie", "stall", "clock_back"})
RATES: Final = (0.002, 0.01, 0.04)
HOST_RATES: Final = (0.001, 0.004, 0.012)
PAYMENT_RATES: Final = (0.1, 0.2, 0.4)
CHANCE_OF_KIND: Final = 0.35


class Faults:
    """Decides by the seed. `on` ends the bad weather; `struck` counts what happened."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.on = True
        self.struck: Counter[str] = Counter()
        self.rates: dict[str, float] = {}
        for kind in KINDS:
            enabled, rate = chance.random() < CHANCE_OF_KIND, chance.randrange(3)
            rates = PAYMENT_RATES if kind in PAYMENTS else HOST_RATES if kind in HOSTS else RATES
            self.rates[kind] = rates[rate] if enabled else 0.0

    def strikes(self, kind: str) -> bool:
        """Whether this fault happens here and now."""
        if not self.on or not self.rates[kind] or self._chance.random() >= self.rates[kind]:
            return False
        self.struck[kind] += 1
        return True

    def between(self, low: int, high: int) -> int:
        """A duration or a count, both ends inclusive."""
        return self._chance.randint(low, high)

    def likely(self, chance: float) -> bool:
        """A choice that is no fault."""
        return self._chance.random() < chance
