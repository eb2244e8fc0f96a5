"""D21: one run on record a day ahead of the clock delays no payment and no look-up, and revives no forgotten key."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.replay import replay
from tests.attacks.test_d21_keyed_write_survives_an_outage import sweep_until_quiet, with_outage
from tests.attacks.test_d23_names_places_and_time import Slow
from tests.world import TENANT, ManualClock, TestWorld, open_world, request, run

DAY_US, MINUTES_US = 86_400_000_000, 600_000_000


@pytest.fixture(params=["sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest) -> str:
    """`sqlite`, or the URL of a database of its own, with the application's role."""
    return "sqlite" if request.param == "sqlite" else str(request.getfixturevalue("database").app)


async def on_record(world: TestWorld, clock: ManualClock, ahead_us: int) -> None:
    """A run is made and ends at a later time; then the clock is put back."""
    clock.at_us += ahead_us
    assert (await world.invoke(request(700, "req_later"))).ended
    clock.at_us -= ahead_us
    await world.stock("ord_x")


def payment(mode: str) -> dict[str, Any]:
    body = request(900, "req_1")
    body["input"]["context"] |= {"order_id": "ord_x"}
    return body | {"mode": mode}


async def bodies(world: TestWorld, run_id: str, kind: str) -> list[Any]:
    entries = await world.stores.tenant(TENANT).read(run_id)
    return [json.loads(one.body or b"") for one in entries if one.kind == kind]


@pytest.mark.parametrize("mode", ["batch", "long_running"])
@pytest.mark.parametrize("payments", ["keyed", "lookup"])
def test_an_outage_of_seconds_ends_within_minutes(payments: str, mode: str, stores: str, tmp_path: Path) -> None:
    async def act() -> None:
        # The shop refuses by the time of this machine what comes after its `not_after`.
        clock = ManualClock(time.time_ns() // 1_000)
        world = await open_world(tmp_path, stores=stores, payments=payments, clock=clock)
        await on_record(world, clock, DAY_US)
        await with_outage(world, 5, "r")
        began_us, paid = clock.at_us, len(world.refunds())
        run_id = (await world.invoke(payment(mode))).run_id
        await sweep_until_quiet(world, most_s=2 * 86_400)
        view = await world.deployment.view(TENANT, run_id)
        assert (view.state, len(world.refunds())) == ("completed", paid + 1)
        assert clock.at_us - began_us < MINUTES_US
        sent = await bodies(world, run_id, "tool.dispatching")
        assert max(one["not_after_us"] for one in sent) < clock.at_us + MINUTES_US
        assert view.record is not None
        assert (await replay(world.deployment, TENANT, run_id)).record_hash == view.record["record_hash"]
        await world.aclose()

    run(act())


def test_a_look_up_after_a_crash_ends_within_minutes(stores: str, tmp_path: Path) -> None:
    async def act() -> None:
        clock = ManualClock()
        world = await open_world(tmp_path, stores=stores, payments="lookup", clock=clock)
        await on_record(world, clock, DAY_US)
        paid = len(world.refunds())
        slow = Slow(world.adapters["adp_payments"])
        world.adapters["adp_payments"] = slow  # type: ignore[assignment]
        began_us = clock.at_us
        first = asyncio.ensure_future(world.invoke(payment("stream")))
        await asyncio.wait_for(slow.under_way.wait(), 60)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        [run_id] = [one for _, one in [key async for key in world.stores.due(clock.at_us + DAY_US)]]
        object.__setattr__(world.deployment.ports, "alive", lambda _owner: False)
        await sweep_until_quiet(world, most_s=2 * 86_400)
        view = await world.deployment.view(TENANT, run_id)
        assert view.ended
        assert clock.at_us - began_us < MINUTES_US
        assert len(world.refunds()) == paid
        assert [one["mode"] for one in await bodies(world, run_id, "tool.dispatching")][-1] == "send"
        await replay(world.deployment, TENANT, run_id)
        await world.aclose()

    run(act())


def test_a_key_that_is_over_by_the_clock_is_not_used_while_the_record_is_ahead(stores: str, tmp_path: Path) -> None:
    async def act() -> None:
        clock = ManualClock()
        world = await open_world(tmp_path, stores=stores, clock=clock)
        await on_record(world, clock, 5 * DAY_US)
        outage = await with_outage(world, 365 * 24 * 3_600, "l", circuits=False)
        lost = await world.invoke(payment("stream"))
        calls = outage.calls
        clock.at_us += 3 * DAY_US
        await world.deployment.advance(TENANT, lost.run_id)
        assert outage.calls == calls, "the other system has forgotten the key, so this would be another payment"
        view = await world.deployment.view(TENANT, lost.run_id)
        assert view.waiting is not None
        assert view.waiting["for"] == "settlement"
        await world.aclose()

    run(act())
