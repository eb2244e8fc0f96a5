"""Many seeds hold every invariant, a seed always makes the same world, and each planted bug is found and reproduced."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from contextos.errors import InvalidSettings
from contextos_sim import SeedOutcome, simulate_seed, simulate_seeds
from contextos_sim.checks.alterations import ALTERATIONS
from contextos_sim.checks.end import check_quiet
from contextos_sim.faults import CRASH_RATES
from contextos_sim.mutants import MUTANTS
from contextos_sim.play import play
from contextos_sim.scenario import HOSTILE_PLANS, PlannedRequest, Scenario, draw
from contextos_sim.world import SimulatedWorld

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
MAX_SEEDS = 1_000
"""Every planted bug is found within this many seeds."""
LIKELY_PLACES = (315, 239, 201, 93, 259, 5, 28, 43, 46, 61, 174)
"""Seeds in which a fault strikes at a rare place; they are tried first."""
LIKELY_SEED = {
    "any_outcome": 37,
    "believe_any_act": 6,
    "believe_any_head": 2,
    "believe_any_row": 155,
    "believe_bodies": 3,
    "believe_the_digest": 69,
    "blind_recheck": 147,
    "blind_resend": 19,
    "fill_defaults_late": 1,
    "forget_compile_controls": 12,
    "forget_plan_controls": 327,
    "forget_the_key": 28,
    "forget_to_wake": 15,
    "free_if_unknown": 8,
    "give_up_early": 113,
    "ignore_the_cost": 88,
    "ignore_the_index": 4,
    "look_moves_time": 47,
    "record_a_call_twice": 4,
    "resend_lost": 34,
    "retry_uncertain": 35,
    "route_unspent": 30,
    "skip_commit_policy": 63,
    "skip_gate": 9,
    "skip_recheck": 3,
    "skip_verify": 140,
    "sum_from_the_row": 0,
    "take_any_answer": 3,
}
"""The seed that found a bug when this was written, tried first. After a change of the simulator it can be another one;
then the search takes longer and finds that."""


def undisturbed(strategy: str, amount_inr: int, scope: str = "tenant", times: int = 1) -> Scenario:
    """One refund without faults, requested `times` times."""
    requests = tuple(
        PlannedRequest(f"req_calm{n}", "usr_771", "ord_881", amount_inr, 8, n * 100_000, 1) for n in range(times)
    )
    return Scenario(
        strategy=strategy,
        scope=scope,
        external_reads=True,
        hosts=1,
        requests=requests,
        hostile=None,
        approvers_answer=1.0,
        inputs_change=False,
        drives_redundantly=False,
        cancels=False,
    )


def played(scenario: Scenario, die_at: tuple[str, int] | None = None, seed: int = 7) -> SimulatedWorld:
    world = SimulatedWorld(seed, fixed=scenario, die_at=die_at)
    play(world)
    world.scheduler.close()
    return world


def ends(world: SimulatedWorld) -> list[str]:
    return sorted(seen.state for seen in world.checker.runs.values())


def test_fifty_seeds_hold_every_invariant_and_exercise_each_case():
    report = simulate_seeds(range(50))
    assert report.clean, "\n".join(map(str, report.violations))
    assert report.seeds_run == 50
    assert {"completed", "refused", "escalated", "rejected"} <= report.ends.keys()
    named = (
        "sessions",
        "sessions out of time",
        "crashes",
        "recoveries",
        "settlements",
        "effects",
        "approvals asked",
        "models asked",
        "circuit open",
        "altered: payment stated as not made",
        "altered: sum",
        *(f"altered: {name}" for name in ALTERATIONS),
    )
    for name in named:
        assert report.exercised[name] > 0, name
    assert len(report.faults) > 12


def test_faults_strike_at_every_place_of_a_run():
    missed = set(CRASH_RATES)
    for seed in (*LIKELY_PLACES, *range(MAX_SEEDS)):
        outcome = simulate_seed(seed)
        assert not outcome.violations, "\n".join(map(str, outcome.violations))
        missed -= {struck.partition(" ")[2].partition(" ")[2] for struck in outcome.faults}
        if not missed:
            return
    pytest.fail(f"in {MAX_SEEDS} seeds nothing struck at {sorted(missed)}")


def test_progress_receives_every_seed_in_order():
    reported: list[int] = []
    simulate_seeds([3, 1, 2], progress=reported.append)
    assert reported == [3, 1, 2]


@pytest.mark.parametrize("seed", [1, 5, 17])
def test_the_same_seed_is_the_same_world_step_by_step(seed):
    assert simulate_seed(seed) == simulate_seed(seed)


def test_two_seeds_are_two_worlds():
    assert simulate_seed(1).digest != simulate_seed(2).digest


def test_a_seed_does_not_depend_on_the_hash_seed_of_the_process():
    program = "from contextos_sim import simulate_seed; print([simulate_seed(seed).digest for seed in (3, 9)])"
    digests = set()
    for hash_seed in ("0", "1", "4242"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "simulator")]),
        }
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        digests.add(done.stdout)
    assert len(digests) == 1


@pytest.mark.parametrize("plant", MUTANTS)
def test_a_planted_bug_is_found_and_its_seed_reproduces_it(plant):
    found: SeedOutcome | None = None
    for seed in (LIKELY_SEED.get(plant, 0), *range(MAX_SEEDS)):
        found = simulate_seed(seed, plant)
        if found.violations:
            break
    assert found is not None
    assert found.violations, f"`{plant}` was not found in {MAX_SEEDS} seeds"
    crashed = [one for one in map(str, found.violations) if "raised TypeError" in one or "raised AttributeError" in one]
    assert not crashed, "the bug does not fit the runtime any more: it raises, and what it does wrong is not found"
    again = simulate_seed(found.seed, plant)
    assert again.violations == found.violations
    assert again.digest == found.digest
    assert f"seed {found.seed}, step " in str(found.violations[0])
    assert not simulate_seed(found.seed).violations, "without the bug the same seed is clean"


def test_an_unknown_bug_is_refused_and_nothing_runs():
    with pytest.raises(InvalidSettings, match="no bug that can be planted"):
        simulate_seed(1, "no_such_bug")


@pytest.mark.parametrize("strategy", ["keyed", "lookup", "none", "lookup_weak"])
def test_without_faults_a_small_refund_is_paid_once(strategy):
    world = played(undisturbed(strategy, 2900))
    assert world.checker.violations == []
    assert ends(world) == ["completed"]
    assert [effect.args["amount_inr"] for effect in world.shop.effects] == [2900]


@pytest.mark.parametrize("strategy", ["keyed", "lookup", "none", "lookup_weak"])
@pytest.mark.parametrize("moment", ["before_commit", "after_commit"])
def test_after_a_crash_at_any_commit_the_record_matches_the_payment(strategy, moment):
    commits = played(undisturbed(strategy, 2900)).moments[moment]
    assert commits > 4
    for number in range(1, commits + 1):
        world = played(undisturbed(strategy, 2900), (moment, number))
        assert world.checker.violations == [], f"{moment} {number}"
        assert world.exercised["crashes"] == 1
        assert len(world.shop.effects) == ends(world).count("completed")


@pytest.mark.parametrize(("strategy", "amount_inr"), [("keyed", 4200), ("lookup", 2900), ("none", 4200)])
def test_after_a_crash_at_any_port_call_the_record_matches_the_payment(strategy, amount_inr):
    ports = played(undisturbed(strategy, amount_inr)).moments["port"]
    assert ports > 20
    crashes = 0
    for number in range(1, ports + 1, 1 if amount_inr < 3000 else 2):
        world = played(undisturbed(strategy, amount_inr), ("port", number))
        crashes += world.exercised["crashes"]
        assert world.checker.violations == [], f"port call {number}"
        assert len(world.shop.effects) == ends(world).count("completed")
    assert crashes > 10


def test_an_effect_of_unknown_outcome_excuses_only_a_run_that_waits_for_its_settlement():
    world = played(undisturbed("none", 2900))
    (seen,) = world.checker.runs.values()
    seen.state, seen.unsettled = "waiting", "0/s3/1"
    check_quiet(world)
    assert world.checker.violations == []
    seen.state = "executing"
    check_quiet(world)
    assert [one.invariant for one in world.checker.violations] == ["nobody_is_lost"]


def test_one_effect_that_several_runs_request_is_paid_once():
    world = played(undisturbed("keyed", 1500, times=3))
    assert world.checker.violations == []
    assert len(world.shop.effects) == 1
    assert ends(world) == ["completed"] * 3


def test_effects_with_scope_run_are_paid_once_per_run():
    world = played(undisturbed("keyed", 1500, scope="run", times=3))
    assert world.checker.violations == []
    assert len(world.shop.effects) == 3


@pytest.mark.parametrize("hostile", sorted(set(HOSTILE_PLANS)))
def test_a_hostile_plan_never_pays(hostile):
    for amount_inr in (2900, 4200):
        honest = undisturbed("none", amount_inr)
        world = played(Scenario(**{**{name: getattr(honest, name) for name in honest.__slots__}, "hostile": hostile}))
        assert world.checker.violations == []
        assert world.shop.effects == []
        assert ends(world) == ["rejected"]


def test_scenarios_cover_every_strategy_scope_and_hostile_plan():
    drawn = [draw(Random(f"scenario {seed}")) for seed in range(300)]
    assert {one.strategy for one in drawn} == {"keyed", "lookup", "none", "lookup_weak"}
    assert {one.scope for one in drawn} == {"tenant", "run"}
    assert {one.hostile for one in drawn} == {*HOSTILE_PLANS, None}
    assert {one.hosts for one in drawn} == {1, 2}


@pytest.mark.soak
def test_a_thousand_seeds_hold_every_invariant():
    report = simulate_seeds(range(1_000))
    assert report.clean, "\n".join(map(str, report.violations))
