"""The time that counts is the clock's, or the latest on record; a step back is recorded once."""

from __future__ import annotations

import json
from pathlib import Path

from contextos.contracts.journal import CLOCK_MARGIN_US, CONTROL
from contextos.trust.recorded_time import behind_us, recorded_now_us
from tests.world import TENANT, open_world, run


def test_a_clock_that_is_behind_what_is_on_record_is_recorded_once(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        store = world.stores.tenant(TENANT)
        latest, lines = await store.latest_us(), len(await store.read(CONTROL))
        assert await recorded_now_us(world.deployment.ports, TENANT) > latest
        world.clock.at_us = latest - CLOCK_MARGIN_US
        assert await recorded_now_us(world.deployment.ports, TENANT) == latest
        assert await behind_us(world.deployment.ports, TENANT) == 0, "clocks differ by as much"
        assert len(await store.read(CONTROL)) == lines
        for _ in range(2):
            world.clock.at_us = latest - CLOCK_MARGIN_US - 2_000
            assert await recorded_now_us(world.deployment.ports, TENANT) == latest
        world.clock.at_us = latest - 2 * CLOCK_MARGIN_US
        assert await behind_us(world.deployment.ports, TENANT) == latest - world.clock.at_us
        added = (await store.read(CONTROL))[lines:]
        assert [(one.kind, one.at_us) for one in added] == [("clock.went_back", latest)]
        assert json.loads(added[0].body or b"")["latest_us"] == latest
        assert await recorded_now_us(world.deployment.ports, "tenant_other") == world.clock.at_us
        world.close()

    run(go())


def test_a_step_is_recorded_again_only_when_the_record_has_gone_on_by_as_much_as_clocks_may_differ(
    tmp_path: Path,
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        store, began = world.stores.tenant(TENANT), world.clock.at_us

        async def steps_after(ahead_us: int) -> int:
            world.clock.at_us = began + ahead_us
            await world.stock(f"ord_{ahead_us}")
            world.clock.at_us = began - 3 * CLOCK_MARGIN_US
            await recorded_now_us(world.deployment.ports, TENANT)
            return len(await store.lines(CONTROL, "clock.went_back"))

        assert [await steps_after(ahead_us) for ahead_us in (0, 1_000_000, CLOCK_MARGIN_US + 1_000_000)] == [1, 1, 2]
        world.close()

    run(go())
