"""How many requests a caller and a tenant may send: token buckets of a minute, kept in the memory of this process.

A request counts once its token is verified, whatever its answer is. The caller is asked first, so that what one caller
is refused is not taken from their tenant.
"""

from __future__ import annotations

from contextos.contracts.admission_limits import AdmissionLimits, MinuteQuota
from contextos.contracts.ports.outside import Clock
from contextos.errors import Overloaded
from contextos.trust.identity.callers import Caller


class RequestRates:
    """The requests of the callers of one process. Use it on one event loop."""

    def __init__(self, limits: AdmissionLimits, clock: Clock) -> None:
        self._limits, self._clock = limits, clock
        self._callers = MinuteQuota[tuple[str, str, str]](limits.max_http_requests_per_minute_per_caller)
        self._tenants = MinuteQuota[str](limits.max_http_requests_per_minute_per_tenant)

    def count(self, caller: Caller) -> None:
        """Count a request. Raises `Overloaded` if the caller or their tenant sent too many within a minute."""
        now_us = self._clock.now_us()
        if early_us := self._callers.take((caller.tenant_id, caller.kind, caller.subject), now_us):
            raise _too_many("you sent", self._limits.max_http_requests_per_minute_per_caller, early_us)
        if early_us := self._tenants.take(caller.tenant_id, now_us):
            raise _too_many("this tenant sent", self._limits.max_http_requests_per_minute_per_tenant, early_us)


def _too_many(who: str, most: int, early_us: int) -> Overloaded:
    return Overloaded("http", f"{who} {most} requests within a minute", retry_after_ms=-(-early_us // 1_000))
