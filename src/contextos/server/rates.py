"""Limits the requests of a caller and of a tenant per minute, and the long jobs that a tenant may have at once.

Requests have token buckets of a minute, in the memory of this process. A request counts once its token is verified,
whatever its answer is. The bucket of the caller comes first, so a request that it refuses does not count for the
tenant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address, ip_network
from typing import Annotated, Final

from fastapi import Depends, Request
from starlette.datastructures import Address

from contextos.contracts.admission_limits import AdmissionLimits, MinuteQuota
from contextos.contracts.ports.outside import Clock
from contextos.errors import Overloaded
from contextos.trust.identity.callers import Caller

MAX_LISTS: Final = 16
MAX_LISTS_PER_TENANT: Final = 4
MAX_STREAMS: Final = 1_536
MAX_STREAMS_PER_TENANT: Final = 1_024
"""Fewer than `connections.MAX_CONNECTIONS`, so that streams always leave connections for requests."""
MAX_HELD_CALLS: Final = 128
MAX_HELD_CALLS_PER_TENANT: Final = 32
"""Fewer than streams, because the server checks a waiting call four times a second."""
BUSY_RETRY_MS: Final = 2_000


class RequestRates:
    """Counts the requests to one process by caller and by tenant. Use it on one event loop."""

    def __init__(self, limits: AdmissionLimits, clock: Clock) -> None:
        self._limits, self._clock = limits, clock
        self._callers = MinuteQuota[tuple[str, str, str]](limits.max_http_requests_per_minute_per_caller)
        self._tenants = MinuteQuota[str](limits.max_http_requests_per_minute_per_tenant)

    def count(self, caller: Caller) -> None:
        """Count a request. Raises `Overloaded` if the caller or their tenant sent too many within a minute."""
        now_us = self._clock.now_us()
        if wait_us := self._callers.take((caller.tenant_id, caller.kind, caller.subject), now_us):
            raise _too_many("you sent", self._limits.max_http_requests_per_minute_per_caller, wait_us)
        if wait_us := self._tenants.take(caller.tenant_id, now_us):
            raise _too_many("this tenant sent", self._limits.max_http_requests_per_minute_per_tenant, wait_us)


def _too_many(subject: str, limit: int, wait_us: int) -> Overloaded:
    return Overloaded("http", f"{subject} {limit} requests within a minute", retry_after_ms=-(-wait_us // 1_000))


def client_address(client: tuple[str, int] | Address | None) -> str:
    """Return the address by which a client is counted: its IPv4 address, or its /64 network of IPv6, as one machine can
    have all addresses of the network. Empty for a client without an address, as behind a Unix socket.
    """
    if client is None or ":" not in client[0]:
        return client[0] if client else ""
    address = ip_address(client[0])
    mapped = address.ipv4_mapped if address.version == 6 else None
    return str(mapped or ip_network((int(address), 64), strict=False))


def share_of(most: int, percent: int) -> int:
    """Return how many of `most` places one address may hold: `percent` of them, at least 1."""
    return max(1, most * percent // 100)


class Places:
    """Places for long work, limited in all, for each tenant and for each address. Use it on one event loop."""

    def __init__(self, of: str, most: int, most_per_tenant: int, *, percent_per_address: int = 100) -> None:
        self._of, self._most, self._most_per_tenant = of, most, most_per_tenant
        self._most_per_address = share_of(most, percent_per_address)
        self._taken_by_tenant: Counter[str] = Counter()
        self._addresses: Counter[str] = Counter()

    def check(self, tenant_id: str, address: str = "") -> None:
        """Raise `Overloaded` if the tenant, the address or the server holds all places that it may."""
        if self._taken_by_tenant[tenant_id] >= self._most_per_tenant or self._taken_by_tenant.total() >= self._most:
            raise Overloaded("http", f"enough {self._of} go on at the moment", retry_after_ms=BUSY_RETRY_MS)
        if address and self._addresses[address] >= self._most_per_address:
            detail = f"your address has {self._most_per_address} {self._of} already"
            raise Overloaded("http", detail, retry_after_ms=BUSY_RETRY_MS)

    def take(self, tenant_id: str, address: str = "") -> None:
        """Take a place. Raises as `check`."""
        self.check(tenant_id, address)
        self._taken_by_tenant[tenant_id] += 1
        self._addresses[address] += 1

    def free(self, tenant_id: str, address: str = "") -> None:
        """Give a place back."""
        self._taken_by_tenant -= Counter({tenant_id: 1})
        self._addresses -= Counter({address: 1})

    @contextmanager
    def place(self, tenant_id: str, address: str = "") -> Iterator[None]:
        """Return a context that holds a place until it ends. Raises as `take`."""
        self.take(tenant_id, address)
        try:
            yield
        finally:
            self.free(tenant_id, address)


async def list_places(request: Request) -> Places:
    """Return the places for lists that read and verify many runs."""
    places: Places = request.app.state.lists
    return places


ListsHere = Annotated[Places, Depends(list_places)]
