"""What an engine asks at every sweep, whoever drives: which runs are due, and which lost their driver."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from contextos.engine.fair import Run

if TYPE_CHECKING:
    from contextos.contracts.ports import Clock, Stores

Orphans = Callable[[], AsyncIterator[Run]]
"""Runs whose driver is dead although they are not due yet. Asking costs a look at each that comes due soon."""
Witness = Callable[[], Awaitable[None]]
"""Tells the witness of every head that moved."""


class Rounds:
    """The truth behind the hints: what `due` names, now and then orphans, and now and then the witness is told."""

    def __init__(
        self, stores: Stores, clock: Clock, *, page: int, orphans: Orphans | None, orphans_interval_ms: int,
        witness: Witness | None, witness_interval_ms: int,
    ) -> None:  # fmt: skip
        self._stores, self._clock, self._page = stores, clock, page
        self._orphans, self._orphans_interval_us, self._next_orphans_us = orphans, orphans_interval_ms * 1000, 0
        self._witness, self._witness_interval_us, self._next_witness_us = witness, witness_interval_ms * 1000, 0

    async def found(self) -> list[Run]:
        """Every run that should be driven now. Raises `Unavailable`."""
        now_us = self._clock.now_us()
        found = [run async for run in self._stores.due(now_us, limit=self._page)]
        if self._orphans is not None and now_us >= self._next_orphans_us:
            found += [run async for run in self._orphans()]
            self._next_orphans_us = now_us + self._orphans_interval_us
        return found

    async def tell(self) -> None:
        """Tell the witness, if it is time. Raises `Unavailable`, or `ChainBroken` where something was cut."""
        now_us = self._clock.now_us()
        if self._witness is not None and now_us >= self._next_witness_us:
            self._next_witness_us = now_us + self._witness_interval_us
            await self._witness()
