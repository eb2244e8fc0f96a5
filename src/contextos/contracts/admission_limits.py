"""`AdmissionLimits`: the load that one process accepts, in total and for one tenant, and its circuit breakers."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)

PERIOD_US: Final = 60_000_000
"""The period of a quota: a minute."""
MAX_KEPT_KEYS: Final = 16_384
"""Most keys whose use of a quota is kept (about 200 bytes each); the one that was used least lately is forgotten."""


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """Limits of one process. A tenant's limits apply within those of the process, and the two of what is open count
    over all processes.

    A caller counts from its request to its answer. A run holds a turn while it is driven, and yields it during an
    adapter call. `max_turns_per_tenant` applies while another tenant was active within the last minute. The quota of
    new runs is a token bucket: it holds one minute's quota and refills evenly, as do those of requests over HTTP. A
    circuit opens after `breaker_failures_in_a_row` failures and stays open for `breaker_cool_down_ms`.
    """

    max_callers: int = 256
    max_callers_per_tenant: int = 64
    max_turns: int = 4
    max_turns_per_tenant: int = 1
    max_new_runs_per_minute_per_tenant: int = 6_000
    max_http_requests_per_minute_per_tenant: int = 60_000
    max_http_requests_per_minute_per_caller: int = 12_000
    max_http_percent_per_address: int = 50
    max_open_sessions_per_agent: int = 1_000
    max_open_questions_per_role: int = 1_000
    breaker_failures_in_a_row: int = 5
    breaker_cool_down_ms: int = 30_000


@dataclass(slots=True)
class YieldedTurn:
    """A turn (the right of one run to be driven by this process) that the run gave up while it called an adapter.
    `waited_us` is how long, in microseconds, the run then waited to get a turn back.
    """

    waited_us: int = 0


class MinuteQuota(Generic[KeyT]):
    """How much of a quota per minute each key used: a token bucket that holds one minute's quota and refills evenly
    (generic cell rate algorithm). Its memory is bounded by `MAX_KEPT_KEYS`. Not safe to use from several threads.
    """

    def __init__(self, per_minute: int) -> None:
        self._part_us = PERIOD_US // per_minute
        self._used_until_us: dict[KeyT, int] = {}
        self._last_us = self._elapsed_us = 0

    def take(self, key: KeyT, now_us: int) -> int:
        """Use up one, and return 0; or use none, and return after how many microseconds there is one again."""
        kept = self._used_until_us
        # Only what a clock goes forward counts, so that one that is set back uses nothing up.
        self._elapsed_us += max(0, now_us - self._last_us)
        self._last_us = now_us
        used_us = max(kept.pop(key, 0), self._elapsed_us)
        early_us = used_us + self._part_us - self._elapsed_us - PERIOD_US
        kept[key] = used_us if early_us > 0 else used_us + self._part_us
        if len(kept) > MAX_KEPT_KEYS:
            del kept[next(iter(kept))]
        return max(0, early_us)
