"""D23: a client that comes back at once after a refusal changes nothing for others, and costs no store work."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.admission_limits import AdmissionLimits
from contextos.errors import Overloaded
from contextos.workspace.engine.admission_controller import AdmissionController
from tests.attacks.test_d23_names_places_and_time import stored
from tests.world import TENANT, TestWorld, open_world, request, run

AGAIN = 500


class CountedStores:
    """Stores that count each call of a tenant's store."""

    def __init__(self, stores: Any) -> None:
        self.stores, self.calls = stores, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stores, name)

    def tenant(self, tenant_id: str) -> Any:
        self.calls += 1
        return self.stores.tenant(tenant_id)


async def limited(path: Path, stores: str, limits: AdmissionLimits) -> tuple[TestWorld, AdmissionController]:
    world = await open_world(path, stores=stores)
    gate = AdmissionController(limits, world.clock)
    counted: Any = CountedStores(world.stores)
    world.deployment.ports = replace(world.deployment.ports, admission=gate, stores=counted)
    world.deployment.ports.stores.calls = 0
    return world, gate


async def refused(world: TestWorld, request_id: str) -> int:
    """The retry time of a refused request, in milliseconds."""
    with pytest.raises(Overloaded) as refusal:
        await world.invoke(request(900, request_id))
    return refusal.value.retry_after_ms


def test_a_refused_request_that_is_sent_again_at_once_is_answered_without_the_store(
    stores: str, tmp_path: Path
) -> None:
    async def act() -> None:
        limits = AdmissionLimits(max_callers=8, max_callers_per_tenant=1, max_new_runs_per_minute_per_tenant=1)
        world, gate = await limited(tmp_path, stores, limits)
        assert (await world.invoke(request(900, "req_0"))).state == "completed"
        assert await refused(world, "req_1") > 1_000, "the quota of new runs is used up"
        before, kept = world.deployment.ports.stores.calls, await stored(world, TENANT)  # type: ignore[attr-defined]
        with gate.caller(TENANT):
            for _ in range(AGAIN):
                await refused(world, "req_1")
        for _ in range(AGAIN):
            await refused(world, "req_1")
        assert world.deployment.ports.stores.calls == before  # type: ignore[attr-defined]
        assert await stored(world, TENANT) == kept
        world.clock.at_us += 60_000_000
        assert (await world.invoke(request(900, "req_1"))).state == "completed", "in its time it is let in"
        await world.aclose()

    run(act())


def test_who_waits_finds_the_place_that_was_promised(stores: str, tmp_path: Path) -> None:
    async def act() -> None:
        world, gate = await limited(tmp_path, stores, AdmissionLimits(max_callers=8, max_callers_per_tenant=1))
        with ExitStack() as inside:
            inside.enter_context(gate.caller(TENANT))
            impatient, patient = await refused(world, "req_impatient"), await refused(world, "req_patient")
            for _ in range(AGAIN):
                assert await refused(world, "req_impatient") <= impatient
            late = await refused(world, "req_late")
        assert late <= 2 * patient, "who comes back at once moves nobody's time"
        with suppress(Overloaded), gate.caller(TENANT, "req_impatient"):
            pytest.fail("a place that is free before its time is not for who did not wait")
        world.clock.at_us += patient * 1_000
        assert (await world.invoke(request(900, "req_patient"))).state == "completed"
        await world.aclose()

    run(act())
