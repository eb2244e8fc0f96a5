"""The port `Claims`: which worker drives which run next, where several workers share one store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

ClaimedRun = tuple[str, str]
"""Tenant and run."""


@dataclass(frozen=True, slots=True)
class ClaimLimits:
    """Limits of one worker, and of all workers together.

    A worker has at most `per_tenant` runs of a tenant, all workers together at most `per_tenant_in_all`, and at most
    `rate_per_tenant` drives of a tenant begin within `rate_period_ms` (0: no limit). A worker that is silent for
    `alive_ms` counts as dead; it can count as dead after two thirds of this time.
    """

    per_tenant: int = 8
    per_tenant_in_all: int = 0
    rate_per_tenant: int = 0
    rate_period_ms: int = 1000
    alive_ms: int = 10_000


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer of an exchange (`Claims.exchange`).

    `taken` are the runs that the worker newly has. `kept` are runs that could not be given back: give them back again.
    `dead` are the workers that count as dead. The next run can be claimed in `next_in_us` microseconds (None: no run
    has a time). `clock_off_us` is how far this process's clock is ahead of the store's, in microseconds.
    """

    taken: tuple[ClaimedRun, ...]
    kept: tuple[ClaimedRun, ...]
    dead: frozenset[str]
    next_in_us: int | None
    clock_off_us: int


class Claims(Protocol):
    """The claims of one worker. A claim is a hint: the lease of a run decides who can append to it.

    `is_notified`: the store tells this worker when a run becomes due. If not, the worker has to ask.
    """

    is_notified: bool

    def listen(self, due: Callable[[], None]) -> None:
        """Call `due` whenever the store reports that a run is due."""
        ...

    async def exchange(
        self, given_back: Mapping[ClaimedRun, int | None], held: Sequence[ClaimedRun], *, free: int
    ) -> Claimed:
        """Show that this worker lives, give runs back, and take at most `free` due runs, each tenant its share.

        `given_back` maps a run to the time for which no worker is to take it (microseconds; None: until its wake time).
        `held` are the runs that this worker has. A worker whose clock is too far from the store's takes no run.

        Raises `Unavailable`; the next exchange repairs the parts that this exchange left open.
        """
        ...

    async def leave(self, given_back: Mapping[ClaimedRun, int | None]) -> None:
        """Give everything back, count as dead from now on, and close the connection. Raises `Unavailable`."""
        ...
