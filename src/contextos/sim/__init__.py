"""The simulated world: the real app over virtual time, seeded faults at every port, invariants that are checked.

`simulate(seed)` plays one small world: a few refunds, processes that die and are given up, a payments service that
loses requests and answers, approvers who answer twice, late or wrongly. `run(seeds)` plays many. The same seed gives
the same world, step by step; a violation names its seed, and the seed reproduces it.
Source: shared/design/architecture.md, "one loop, three worlds"; shared/design/style.md, "Simulation".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from contextos.sim.invariants import Violation
from contextos.sim.mutants import MUTANTS, with_mutant
from contextos.sim.play import play
from contextos.sim.world import SimulatedWorld


@dataclass(frozen=True, slots=True)
class SeedOutcome:
    """What one seed came to. `digest` covers every step: two runs of one seed must agree on it."""

    seed: int
    violations: tuple[Violation, ...]
    digest: str
    steps: int
    ends: Counter[str]
    faults: Counter[str]
    exercised: Counter[str]


@dataclass(slots=True)
class SimulationReport:
    """What many seeds came to: every violation, and counts of what was exercised on the way."""

    seeds_run: int = 0
    steps: int = 0
    violations: tuple[Violation, ...] = ()
    ends: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    exercised: Counter[str] = field(default_factory=Counter)

    @property
    def clean(self) -> bool:
        """Whether no invariant was violated."""
        return not self.violations


def simulate_seed(seed: int, plant: str | None = None) -> SeedOutcome:
    """Play one seed; `plant` names a bug to plant in the runtime first (`MUTANTS`)."""
    world = SimulatedWorld(seed)
    with with_mutant(plant):
        try:
            play(world)
        finally:
            world.scheduler.close()
    seen = world.judge.runs.values()
    exercised = world.exercised + Counter(
        {
            "runs": len(seen),
            "effects": len(world.shop.effects),
            "commits": world.moments["after_commit"],
            "recoveries": sum(one.kinds["run.resumed"] for one in seen),
            "sessions": sum(one.deadline_us is not None for one in seen),
            "sessions out of time": sum(one.deadline_us is not None and one.state == "exhausted" for one in seen),
            "approvals asked": sum(len(one.asked) for one in seen),
        }
    )
    return SeedOutcome(
        seed,
        tuple(world.judge.violations),
        world.scheduler.digest,
        world.scheduler.steps,
        Counter(one.state for one in seen),
        world.faults.struck,
        exercised,
    )


def simulate_seeds(
    seeds: Iterable[int], *, plant: str | None = None, progress: Callable[[int], None] | None = None
) -> SimulationReport:
    """Play every seed and add up. `progress` is called with each seed when it is done."""
    report = SimulationReport()
    for seed in seeds:
        outcome = simulate_seed(seed, plant)
        report.seeds_run += 1
        report.steps += outcome.steps
        report.violations += outcome.violations
        report.ends += outcome.ends
        report.faults += outcome.faults
        report.exercised += outcome.exercised
        if progress is not None:
            progress(seed)
    return report


__all__ = ["MUTANTS", "SeedOutcome", "SimulationReport", "Violation", "simulate_seed", "simulate_seeds"]
