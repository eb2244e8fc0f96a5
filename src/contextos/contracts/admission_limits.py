"""`AdmissionLimits`: how much one process does at once, for whom, and when it stops asking what keeps failing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """Bounds of one process; those of a tenant hold within those of the process.

    A caller counts from its request to its answer. A run has a turn while it is driven, and lets others have it while
    an adapter is asked. A tenant keeps to its share of the turns where another was there within a minute. New runs may
    come at once up to the quota of a minute, and then as fast as it comes back.
    """

    max_callers: int = 256
    max_callers_per_tenant: int = 64
    max_turns: int = 4
    max_turns_per_tenant: int = 1
    max_new_runs_per_minute_per_tenant: int = 6_000
    breaker_failures_in_a_row: int = 5
    breaker_cool_down_ms: int = 30_000


@dataclass(slots=True)
class YieldedTurn:
    """How a run stood aside once: `waited_us` is how long it then waited for its turn, with the answer in hand."""

    waited_us: int = 0
