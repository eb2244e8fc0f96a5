"""Models in the simulated world: killed anywhere, failing in every way, at once with themselves; no budget is passed.

Each world is checked at every commit and at every call that arrives at a provider: a call is on record and reserved
before, no answer on record is asked for again, what is reserved and settled stays within the budget when a model is
asked, and the record states what all calls cost. In the end nothing is left reserved, and each run verifies and
replays without a provider.

A run asks one question after the other, so calls at once are those of several runs, of a request that is sent twice,
and of two processes that drive the same run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from contextos.action.models.gateway import ModelGateway
from contextos.contracts.envelopes.models import ModelOutcome
from contextos_sim.invariants import RunObservation
from contextos_sim.models import FAILURES, RATES
from contextos_sim.mutants import with_mutant
from contextos_sim.play import play
from contextos_sim.scenario import PlannedRequest, Scenario, by_model
from contextos_sim.world import SimulatedWorld

KINDS = ("plan", "session")


class Watched(SimulatedWorld):
    """A world that notes how many questions were open at once, and by the number of a question the moments at which a
    process can die until its answer is on record: port calls and commits, as `die_at` names them.
    """

    def __init__(self, seed: int, **of: Any) -> None:
        self.open: set[int] = set()
        self.answered: set[int] = set()
        self.asked = self.at_once = 0
        self.awaits: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
        super().__init__(seed, **of)

    def dies_at(self, moment: str) -> bool:
        dies = super().dies_at(moment)
        for number in self.open | self.answered:
            self.awaits[number].append((moment, self.moments[moment]))
        if moment == "after_commit":
            self.answered.clear()
        return dies

    @contextmanager
    def watching(self) -> Iterator[None]:
        original = ModelGateway.ask

        async def ask(gateway: ModelGateway, question: Any) -> Any:
            number, self.asked = self.asked, self.asked + 1
            self.open.add(number)
            self.at_once = max(self.at_once, len(self.open))
            try:
                return await original(gateway, question)
            finally:
                self.open.remove(number)
                self.answered.add(number)

        with patch.object(ModelGateway, original.__name__, ask):
            yield


def simulated(
    seed: int,
    kind: str,
    *,
    fixed: Scenario | None = None,
    die_at: tuple[str, int] | None = None,
    rate: float | None = None,
) -> Watched:
    """Play a seed. `rate` is how often the models of a fixed scenario fail."""
    world = Watched(seed, fixed=fixed, by_model=kind, die_at=die_at)
    world.model_rate = world.model_rate if rate is None else rate
    try:
        with world.watching():
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


def at_once(kind: str, hosts: int) -> Scenario:
    """Two small refunds of different orders at the same time, without faults but those of models."""
    (one,) = calm(kind).requests
    other = replace(one, request_id="req_other", order_id="ord_895", amount_inr=1_500)
    return replace(calm(kind), hosts=hosts, requests=(one, other))


def outcomes(world: SimulatedWorld) -> Counter[str]:
    return Counter(one["outcome"] for run in world.checker.runs.values() for one in run.models.values())


def left_reserved(run: RunObservation) -> int:
    """What was reserved for the calls of a run and was never settled, in 1/10,000 US cent."""
    return sum(one["reserved_units"] for key, one in run.asks.items() if key not in run.models)


def kinds_of_calls(run: RunObservation) -> Iterator[str]:
    """What is special about the calls of a run: each retry of the same model, and each fallback to another."""
    for key, one in run.asks.items():
        question, _, attempt = key.rpartition("/")
        if before := run.asks.get(f"{question}/{int(attempt) - 1}"):
            yield "retry" if before["model"] == one["model"] else "fallback"


def require_many(seeds: range) -> Counter[str]:
    """Simulate seeds, half of them with each kind of model; return how often each outcome and end occurred, and how
    many worlds had calls at once.
    """
    seen: Counter[str] = Counter()
    for seed in seeds:
        world = simulated(seed, KINDS[seed % 2])
        assert world.checker.violations == [], f"seed {seed}: {world.checker.violations[0]}"
        seen += outcomes(world)
        for run in world.checker.runs.values():
            assert left_reserved(run) == 0, f"seed {seed}: `{run.run_id}`"
            seen.update([f"end {run.state}", *kinds_of_calls(run)])
        seen["crashes"] += world.exercised["crashes"]
        seen["calls at once"] += world.at_once > 1
    return seen


def require_killed_at_each_await(seeds: range) -> Counter[str]:
    """In each schedule kill the process at every await of one of its calls, which the seed chooses."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        kind, rate = KINDS[seed % 2], RATES[seed % len(RATES)]
        fixed = at_once(kind, 1 + seed // 2 % 2)
        undisturbed = simulated(seed, kind, fixed=fixed, rate=rate)
        for die_at in undisturbed.awaits[Random(f"call {seed}").randrange(len(undisturbed.awaits))]:
            world = simulated(seed, kind, fixed=fixed, rate=rate, die_at=die_at)
            assert world.checker.violations == [], f"seed {seed} {die_at}: {world.checker.violations[0]}"
            assert all(run.ended and not left_reserved(run) for run in world.checker.runs.values())
            assert world.exercised["crashes"] == 1, f"seed {seed} {die_at}"
            seen += outcomes(world)
            seen["kills"] += 1
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
    assert {"calls at once", "retry", "fallback"} <= seen.keys()


@pytest.mark.soak
def test_in_a_thousand_schedules_no_budget_is_passed_and_nothing_stays_reserved() -> None:
    seen = require_many(range(1_000))
    assert {"answered", *FAILURES, "lost"} <= seen.keys()
    assert min(seen[one] for one in ("calls at once", "retry", "fallback", "crashes")) > 50, seen


@pytest.mark.slow
def test_killed_at_every_await_of_a_call_a_run_loses_no_answer_and_repeats_none() -> None:
    assert require_killed_at_each_await(range(8))["lost"]


@pytest.mark.soak
def test_killed_at_every_await_of_a_call_in_two_hundred_schedules() -> None:
    seen = require_killed_at_each_await(range(200))
    assert seen["kills"] > 2_000
    assert seen["lost"] > 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "invariant"),
    [
        ("resend_lost", "each_call_of_a_model_is_reserved"),
        ("free_if_unknown", "usage_is_settled"),
        ("route_unspent", "budget_of_models"),
    ],
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
