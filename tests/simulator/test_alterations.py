"""Each alteration changes what a store reads, leaves the store alone, and is found by `verify`."""

from __future__ import annotations

from random import Random

import pytest

from contextos.audit.verify import verify_tenant
from contextos.contracts.encoding.jcs import is_canonical
from contextos.contracts.entries.bodies import body_fault
from contextos.contracts.ports.storage import Store
from contextos.errors import ChainBroken
from contextos_sim import example
from contextos_sim.checks.alterations import ALTERATIONS, AlteredStore
from contextos_sim.play import play
from contextos_sim.scenario import PlannedRequest, Scenario
from contextos_sim.scheduler import immediately
from contextos_sim.world import SimulatedWorld

TENANT = example.EXAMPLE_TENANT


@pytest.fixture(scope="module")
def paid() -> tuple[Store, str]:
    """A store with one run that paid, without faults, and the run's id."""
    request = PlannedRequest("req_calm", "usr_771", "ord_881", 2900, 8, 0, 1)
    world = SimulatedWorld(7, fixed=Scenario("keyed", "tenant", False, 1, (request,), None, 1.0, False, False, False))
    play(world)
    world.scheduler.close()
    (run,) = world.checker.runs
    assert len(world.shop.effects) == 1
    return world.stores.tenant(TENANT), run


def verified(store: Store) -> int:
    return len(immediately(verify_tenant(store, TENANT, example.keys())))


def test_a_store_without_an_alteration_verifies(paid: tuple[Store, str]) -> None:
    store, _ = paid
    assert verified(AlteredStore(store, {}, {})) == verified(store) == 3


@pytest.mark.parametrize("name", ALTERATIONS)
def test_verify_finds_each_alteration_wherever_it_is(name: str, paid: tuple[Store, str]) -> None:
    store, run = paid
    for seed in range(8):
        altered = ALTERATIONS[name](Random(seed), store, run)
        assert altered is not None
        with pytest.raises(ChainBroken):
            verified(altered)
    assert verified(store) == 3, "the store itself is as it was"


def test_what_an_altered_entry_says_is_in_a_form_that_the_runtime_writes(paid: tuple[Store, str]) -> None:
    store, run = paid
    fitting = 0
    for seed in range(30):
        altered = ALTERATIONS["body changed"](Random(seed), store, run)
        assert altered is not None
        ((stream, entries),) = altered.streams.items()
        ((before, after),) = [
            (old, new) for old, new in zip(immediately(store.read(stream)), entries, strict=True) if old != new
        ]
        assert before.body is not None
        assert after.body is not None
        fitting += is_canonical(after.body) and body_fault(stream, after.kind, after.body) is None
    assert fitting > 25, "otherwise a check of the form finds it, and a missing check of the digest is not seen"
