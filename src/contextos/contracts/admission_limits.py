"""`AdmissionLimits`: the load that one process accepts, in total and for one tenant, and its circuit breakers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """Limits of one process. A tenant's limits apply within those of the process.

    A caller counts from its request to its answer. A run holds a turn while it is driven, and yields it during an
    adapter call. `max_turns_per_tenant` applies while another tenant was active within the last minute. The quota of
    new runs is a token bucket: it holds one minute's quota and refills evenly. A circuit opens after
    `breaker_failures_in_a_row` failures and stays open for `breaker_cool_down_ms`.
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
    """A turn (the right of one run to be driven by this process) that the run gave up while it called an adapter.
    `waited_us` is how long, in microseconds, the run then waited to get a turn back.
    """

    waited_us: int = 0
