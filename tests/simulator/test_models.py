"""Models in the simulated world: killed anywhere, failing in every way, at once with themselves; no budget is passed.

Each world is checked at every commit and at every call that arrives at a provider: a call is on record and reserved
before, no answer on record is asked for again, what is reserved and settled stays within the budget when a model is
asked, and the record states what all calls cost. In the end nothing is left reserved, and each run verifies and
replays without a provider.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from contextos.contracts.envelopes.models import ModelOutcome
from contextos_sim.models import FAILURES
from contextos_sim.mutants import with_mutant
from contextos_sim.play import play
from contextos_sim.scenario import PlannedRequest, Scenario, by_model
from contextos_sim.world import SimulatedWorld

KINDS = ("plan", "session")


def simulated(
    seed: int, kind: str, *, fixed: Scenario | None = None, die_at: tuple[str, int] | None = None
) -> SimulatedWorld:
    world = SimulatedWorld(seed, fixed=fixed, by_model=kind, die_at=die_at)
    try:
        play(world)
    finally:
        world.scheduler.close()
    return world


def calm(kind: str) -> Scenario:
    """One small refund without faults."""
    request = PlannedRequest("req_calm", "usr_771", "ord_881", 2_900, 8, 0, 1)
    drawn = Scenario(
        strategy="keyed",
        scope="tenant",
        external_reads=True,
        hosts=1,
        requests=(request,),
        hostile=None,
        approvers_answer=1.0,
        inputs_change=False,
        drives_redundantly=False,
        cancels=False,
    )
    return by_model(drawn, kind)


def outcomes(world: SimulatedWorld) -> Counter[str]:
    return Counter(one["outcome"] for run in world.checker.runs.values() for one in run.models.values())


def require_many(seeds: range) -> Counter[str]:
    """Simulate seeds, half of them with each kind of model; return how often each outcome and end occurred."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        world = simulated(seed, KINDS[seed % 2])
        assert world.checker.violations == [], f"seed {seed}: {world.checker.violations[0]}"
        seen += outcomes(world)
        seen.update(f"end {run.state}" for run in world.checker.runs.values())
        seen["crashes"] += world.exercised["crashes"]
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_without_faults_a_model_refunds_once(kind: str) -> None:
    world = simulated(7, kind, fixed=calm(kind))
    assert world.checker.violations == []
    assert [run.state for run in world.checker.runs.values()] == ["completed"]
    assert [one.args["amount_inr"] for one in world.shop.effects] == [2_900]
    assert outcomes(world) == {"answered": 1 if kind == "plan" else 4}


def test_a_few_seeds_hold_every_invariant() -> None:
    assert require_many(range(6))["answered"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", ["port", "before_commit", "after_commit"])
def test_a_process_that_dies_at_any_await_loses_no_answer_and_repeats_none(moment: str, kind: str) -> None:
    moments = simulated(7, kind, fixed=calm(kind)).moments[moment]
    lost = 0
    for number in range(1, moments + 1):
        world = simulated(7, kind, fixed=calm(kind), die_at=(moment, number))
        assert world.checker.violations == [], f"{moment} {number}: {world.checker.violations[0]}"
        assert [run.state for run in world.checker.runs.values()] == ["completed"], f"{moment} {number}"
        assert len(world.shop.effects) == 1
        lost += outcomes(world)["lost"]
        assert outcomes(world)["answered"] == (1 if kind == "plan" else 4)
    assert lost or moment == "before_commit"


@pytest.mark.slow
def test_two_hundred_seeds_hold_every_invariant_and_fail_in_every_way() -> None:
    seen = require_many(range(200))
    expected: set[ModelOutcome] = {"answered", *FAILURES}
    assert expected <= seen.keys()
    assert {"lost", "end completed", "end escalated", "end exhausted", "end cancelled"} <= seen.keys()
    assert seen["crashes"] > 100


@pytest.mark.soak
def test_a_thousand_seeds_hold_every_invariant() -> None:
    assert {"answered", *FAILURES} <= require_many(range(1_000)).keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "invariant"),
    [("resend_lost", "each_call_of_a_model_is_reserved"), ("free_if_unknown", "usage_is_settled")],
)
def test_a_planted_bug_of_money_is_found(plant: str, invariant: str) -> None:
    with with_mutant(plant):
        for seed in range(100):
            world = simulated(seed, KINDS[seed % 2])
            if world.checker.violations:
                break
    assert invariant in {one.invariant for one in world.checker.violations}


def test_the_same_seed_is_the_same_world() -> None:
    first, again = simulated(3, "session"), simulated(3, "session")
    assert first.scheduler.digest == again.scheduler.digest
    assert first.scheduler.digest != simulated(4, "session").scheduler.digest


def test_a_model_does_not_change_the_other_scenarios() -> None:
    one = calm("plan")
    assert replace(one, by_model="") == replace(calm("session"), by_model="")
