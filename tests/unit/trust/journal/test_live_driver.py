"""The lease of a driver is written alone before anything outside is asked, and is released alone."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.documents.runs import LEASES, Lease
from contextos.contracts.journal import CLOCK_MARGIN_US
from contextos.errors import Untimely
from contextos.trust.journal.live_driver import LiveDriver
from contextos_sim.memory.stores import MemoryStores
from tests.suites.store_suite import SettableClock
from tests.world import SystemEntropy, run


def test_a_lease_says_how_many_drivers_died_and_a_release_forgets_them() -> None:
    clock = SettableClock()
    store = MemoryStores(clock=clock).tenant("acme")
    keys: Any = None
    live = LiveDriver(store, clock, SystemEntropy(), keys, "here", 1_000, deaths=2)

    async def held() -> Lease:
        found = await LEASES.one(store, "run_1")
        assert found is not None
        return found.body

    async def act() -> None:
        await live.take("run_1")
        assert (await held(), live.holds) == (Lease("here", clock.us + 1_000, at_us=clock.us, deaths=2), True)
        await live.release("run_1")
        assert (await held(), live.holds, live.lease_version) == (Lease("here", 0), False, 2)
        await live.release("run_1")
        assert live.lease_version == 2, "what is not held is not released"

    run(act())


def test_the_store_refuses_a_lease_while_the_one_before_is_not_over_and_from_a_clock_too_far_ahead() -> None:
    clock, ahead = SettableClock(), SettableClock()
    store = MemoryStores(clock=clock).tenant("acme")
    keys: Any = None

    async def act() -> None:
        live = LiveDriver(store, clock, SystemEntropy(), keys, "here", 1_000, free_us=clock.us + 1)
        with pytest.raises(Untimely):
            await live.take("run_1")
        clock.us += 1
        ahead.us = clock.us + CLOCK_MARGIN_US + 1
        early = LiveDriver(store, ahead, SystemEntropy(), keys, "there", 1_000)
        with pytest.raises(Untimely):
            await early.take("run_1")
        await live.take("run_1")

    run(act())


@pytest.mark.requirement("J-FENCED")
def test_the_store_refuses_entries_that_a_clock_dated_ahead_which_is_right_again_at_the_commit() -> None:
    clock, own = SettableClock(), SettableClock()
    store = MemoryStores(clock=clock).tenant("acme")
    keys: Any = None

    async def act() -> None:
        live = LiveDriver(store, own, SystemEntropy(), keys, "here", 1_000)
        own.us = clock.us + CLOCK_MARGIN_US + 1
        assert live.time_us() == own.us
        own.us = clock.us
        with pytest.raises(Untimely):
            await live.take("run_1")
        live.follows(0, 0, 0, 0)
        live.time_us()
        await live.take("run_1")

    run(act())
