"""A heart beats for what it drives under its own lease, and its beat counts for nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos.contracts.documents.runs import LEASES
from contextos.contracts.journal import CLOCK_MARGIN_US, Batch, Document, Write
from contextos.deployment.leases import Heartbeats, held_until_us, wake_if_answered
from contextos_sim.memory.stores import MemoryStores
from tests.suites.store_suite import SettableClock
from tests.world import TENANT as WORLD_TENANT
from tests.world import open_world, request, run

TENANT, RUN = "tenant_a", "run_1"
TTL_US, LEASE_US = 60, 180
NOW_US = 1_000


async def stores_with(lease: dict[str, Any]) -> MemoryStores:
    """A store with the lease of one run, which is to be woken at 7."""
    stores = MemoryStores(clock=SettableClock(NOW_US))
    write = Write("leases", RUN, 0, orjson.dumps(lease))
    await stores.tenant(TENANT).commit(Batch(run=RUN, writes=(write,), wake_at_us=7))
    return stores


async def beaten(stores: MemoryStores, heart: Heartbeats, now_us: int = NOW_US) -> tuple[list[dict[str, Any]], bool]:
    """What is said after a beat of `me`, and whether the run is still woken when it was to be."""
    await heart.send(stores, "me", now_us)
    said = [orjson.loads(one.body) for one in await stores.tenant(TENANT).scan("heartbeats")]
    return said, [run async for run in stores.due(7)] == [(TENANT, RUN)]


def driving(began_us: int = 0) -> Heartbeats:
    heart = Heartbeats(TTL_US, LEASE_US)
    heart.begins((TENANT, RUN), began_us)
    return heart


def test_a_heartbeat_states_its_expiry_and_moves_the_wake_time() -> None:
    async def go() -> None:
        stores = await stores_with({"owner": "me", "until_us": 1_100})
        said, as_before = await beaten(stores, driving())
        assert said == [{"owner": "me", "at_us": NOW_US, "until_us": NOW_US + TTL_US}]
        assert not as_before
        assert [run async for run in stores.due(NOW_US + LEASE_US)] == [(TENANT, RUN)]

    asyncio.run(go())


@pytest.mark.parametrize(
    "lease",
    [{"owner": "another", "until_us": 1_100}, {"owner": "me", "until_us": 0}],
    ids=["another holds it", "it was let go"],
)
def test_without_a_lease_there_is_no_beat_and_the_wake_stays(lease: dict[str, Any]) -> None:
    async def go() -> None:
        assert await beaten(await stores_with(lease), driving()) == ([], True)

    asyncio.run(go())


def test_a_lease_that_moves_while_it_is_looked_at_lets_nothing_through() -> None:
    async def go() -> None:
        stores = await stores_with({"owner": "me", "until_us": 1_100})
        store = stores.tenant(TENANT)
        scan = type(store).scan

        async def moving(self: Any, collection: str, **asked: Any) -> Sequence[Document]:
            if collection == "heartbeats" and asked:
                let_go = Write("leases", RUN, 1, orjson.dumps({"owner": "me", "until_us": 0}))
                await store.commit(Batch(run=RUN, writes=(let_go,)))
            return await scan(self, collection, **asked)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(store), "scan", moving)
            assert await beaten(stores, driving()) == ([], True)

    asyncio.run(go())


def test_it_beats_at_every_third_of_the_ttl_and_not_more_often() -> None:
    async def go() -> None:
        stores = await stores_with({"owner": "me", "until_us": 1_100})
        heart = driving(NOW_US)
        at_us = []
        for now_us in range(NOW_US, NOW_US + 50, 5):
            said, _ = await beaten(stores, heart, now_us)
            at_us += [one["at_us"] for one in said if one["at_us"] not in at_us]
        assert at_us == [NOW_US + 20, NOW_US + 40]
        heart.ends((TENANT, RUN))
        said, _ = await beaten(stores, heart, NOW_US + 500)
        assert said[0]["at_us"] == NOW_US + 40

    asyncio.run(go())


def test_a_heart_beats_on_after_its_clock_was_put_back() -> None:
    async def go() -> None:
        stores = await stores_with({"owner": "me", "until_us": 9_000})
        heart = driving(8_000)
        said, _ = await beaten(stores, heart)
        assert said == [{"owner": "me", "at_us": NOW_US, "until_us": NOW_US + TTL_US}]
        said, _ = await beaten(stores, heart, NOW_US + 1)
        assert said[0]["at_us"] == NOW_US, "once is enough until it is due again"

    asyncio.run(go())


@pytest.mark.parametrize(("ahead_us", "held"), [(TTL_US, True), (TTL_US + 1, False)])
@pytest.mark.parametrize("of", ["the lease", "the beat"])
def test_a_heartbeat_from_before_the_clock_was_put_back_holds_no_run(of: str, ahead_us: int, held: bool) -> None:
    async def go() -> bool:
        said = {"at_us": NOW_US + ahead_us, "until_us": NOW_US + ahead_us + TTL_US}
        lease = {"owner": "driver", "at_us": NOW_US - 900, "until_us": 9_000, "silent_until_us": NOW_US - 840}
        if of == "the lease":
            lease |= {"at_us": said["at_us"], "silent_until_us": said["until_us"]}
        store = (await stores_with(lease)).tenant(TENANT)
        if of == "the beat":
            beat = Write("heartbeats", RUN, 0, orjson.dumps({"owner": "driver", **said}))
            await store.commit(Batch(run=RUN, writes=(beat,)))
        return await held_until_us(store, (await LEASES.page(store))[0], lambda _: True, NOW_US) > NOW_US

    assert asyncio.run(go()) is held


@pytest.mark.parametrize(("ahead_us", "held"), [(CLOCK_MARGIN_US, True), (CLOCK_MARGIN_US + 1, False)])
def test_a_lease_from_before_the_clock_was_put_back_holds_no_run(ahead_us: int, held: bool) -> None:
    async def go() -> bool:
        at_us = NOW_US + ahead_us
        lease = {"owner": "driver", "at_us": at_us, "until_us": at_us + LEASE_US}
        store = (await stores_with(lease)).tenant(TENANT)
        return await held_until_us(store, (await LEASES.page(store))[0], lambda _: True, NOW_US) > NOW_US

    assert asyncio.run(go()) is held


@pytest.mark.parametrize(
    ("lease", "beat", "held"),
    [
        ({"until_us": 1_001}, None, True),
        ({"until_us": 1_000}, None, False),
        ({"until_us": 1_100, "silent_until_us": 1_000}, None, False),
        ({"until_us": 900, "silent_until_us": 1_001}, None, True),
        ({"until_us": 1_100, "silent_until_us": 900}, ("another", 1_100), False),
        ({"until_us": 900, "silent_until_us": 900}, ("driver", 1_001), True),
        ({"until_us": 1_100, "silent_until_us": 1_001}, ("driver", 900), True),
        ({"until_us": 1_100, "silent_until_us": 900}, ("driver", 1_000), False),
    ],
)
def test_a_driver_that_beats_holds_its_run_until_it_was_silent_for_too_long(
    lease: dict[str, int], beat: tuple[str, int] | None, held: bool
) -> None:
    async def go(alive: Callable[[str], bool]) -> bool:
        store = (await stores_with({"owner": "driver", **lease})).tenant(TENANT)
        if beat:
            said = orjson.dumps({"owner": beat[0], "at_us": 0, "until_us": beat[1]})
            await store.commit(Batch(run=RUN, writes=(Write("heartbeats", RUN, 0, said),)))
        return await held_until_us(store, (await LEASES.page(store))[0], alive, NOW_US) > NOW_US

    assert asyncio.run(go(lambda _: True)) is held
    assert not asyncio.run(go(lambda _: False)), "who is known to be dead holds nothing"


def test_an_answer_to_a_run_that_ended_meanwhile_wakes_nobody(tmp_path: Path) -> None:
    """Seed 400 of the simulator: the run had been read when an answer was its last entry."""

    async def act() -> None:
        world = await open_world(tmp_path)
        asked = await world.invoke(request(4200, "req_1"))
        await world.answer(asked.run_id, "approved")
        store, ports = world.stores.tenant(WORLD_TENANT), world.deployment.ports
        answered = await store.read(asked.run_id)
        assert answered[-1].kind == "approval.answered"
        await wake_if_answered(ports, store, asked.run_id, answered)
        assert [one async for one in world.stores.due(world.clock.now_us())] == [(WORLD_TENANT, asked.run_id)]
        assert (await world.deployment.advance(WORLD_TENANT, asked.run_id)).wake_at_us is None
        await wake_if_answered(ports, store, asked.run_id, answered)
        assert [one async for one in world.stores.due(world.clock.now_us())] == []
        world.close()

    run(act())
