"""`AdmissionLimits`: the load that one process accepts, in total and for one tenant, and its circuit breakers."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Annotated, Final, Generic, TypeVar

from contextos.contracts.setting_types import SettingTable, whole

KeyT = TypeVar("KeyT", bound=Hashable)

PERIOD_US: Final = 60_000_000
"""The period of a quota: a minute."""
MAX_KEPT_KEYS: Final = 16_384
"""The most keys whose use of a quota is kept (about 200 bytes each); the key that was unused for longest is dropped."""


@dataclass(frozen=True, slots=True)
class AdmissionLimits(SettingTable):
    """Limits of one process. A tenant's limits apply within the limits of the process. Only the limits of open sessions
    and open questions count over all processes.

    A caller counts from its request to its answer. A run holds a turn while it is driven, and yields it during a call
    of an adapter or of a model. `max_turns_per_tenant` applies while another tenant was active within the last minute.
    The quota of new runs is a token bucket: it holds one minute's quota and refills evenly, as do those of requests
    over HTTP. A circuit opens after `breaker_failures_in_a_row` failures and stays open for `breaker_cool_down_ms`.
    """

    max_callers: Annotated[
        int, whole(1, 1_000_000, "requests answered at the same time; more are refused with exit code 4 (`overloaded`)")
    ] = 256
    max_callers_per_tenant: Annotated[
        int, whole(1, 1_000_000, "requests of one tenant answered at the same time, so that other tenants have room")
    ] = 64
    max_turns: Annotated[
        int,
        whole(1, 1_024, "runs computed at the same time; a run that waits for an adapter or a model does not count"),
    ] = 4
    max_turns_per_tenant: Annotated[
        int,
        whole(
            1,
            1_024,
            "runs of one tenant computed at the same time, if another tenant was active in the last minute; a "
            "smaller number isolates tenants better",
        ),
    ] = 1
    max_new_runs_per_minute_per_tenant: Annotated[
        int, whole(1, 60_000_000, "new runs of one tenant; more are refused, with the time to wait")
    ] = 6_000
    max_http_requests_per_minute_per_tenant: Annotated[
        int,
        whole(1, 60_000_000, "requests of one tenant to the HTTP API; more are answered with 429 and `Retry-After`"),
    ] = 60_000
    max_http_requests_per_minute_per_caller: Annotated[
        int, whole(1, 60_000_000, "requests of one person or workload in one tenant, so that others have room")
    ] = 12_000
    max_http_percent_per_address: Annotated[
        int,
        whole(
            1,
            100,
            "percent of the connections, of the streams of events and of the held calls of a server that one address "
            "(of IPv6, one /64 network) can have; 100 behind a proxy, through which all come",
        ),
    ] = 50
    max_open_sessions_per_agent: Annotated[
        int,
        whole(
            1, 20_000, "open sessions of one agent in one tenant, over all processes; more are refused until some end"
        ),
    ] = 1_000
    max_open_questions_per_role: Annotated[
        int,
        whole(
            1,
            20_000,
            "open questions to one role of a tenant, and so to each person who holds it, over all processes; a call "
            "that needs one more waits, and its caller reads so",
        ),
    ] = 1_000
    breaker_failures_in_a_row: Annotated[
        int, whole(1, 1_000_000, "transport failures in a row after which a capability is not called for a while")
    ] = 5
    breaker_cool_down_ms: Annotated[int, whole(1, 86_400_000, "milliseconds after which one call is tried again")] = (
        30_000
    )


@dataclass(slots=True)
class YieldedTurn:
    """A turn (the right of one run to be driven by this process) that the run gave up while it called an adapter or
    a model.
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
        """Use one unit of the key's quota and return 0; if none is left, return the microseconds until there is one."""
        used_until_us = self._used_until_us
        # Only forward steps of the clock count, so that a clock that is set back uses nothing up.
        self._elapsed_us += max(0, now_us - self._last_us)
        self._last_us = now_us
        used_us = max(used_until_us.pop(key, 0), self._elapsed_us)
        early_us = used_us + self._part_us - self._elapsed_us - PERIOD_US
        used_until_us[key] = used_us if early_us > 0 else used_us + self._part_us
        if len(used_until_us) > MAX_KEPT_KEYS:
            del used_until_us[next(iter(used_until_us))]
        return max(0, early_us)
