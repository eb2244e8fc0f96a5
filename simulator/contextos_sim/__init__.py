"""Simulation: the real application over virtual time, with seeded faults at every port and checked invariants.

`simulate_seed` runs one small world: a few refunds, processes that crash or are presumed dead, a payments service that
loses requests and replies, approvers who answer twice, late or wrongly. `simulate_seeds` runs many. The same seed makes
the same world, step by step; a violation names its seed, and the seed reproduces it.

Owns: fault schedules, the scheduler, simulated ports, the stores in memory that those of the runtime are compared with,
invariants and planted bugs. Does not own: the application, which
runs unchanged, and the example's pack and data (`examples/support_refund`).
Tests: tests/simulator/test_simulation.py, tests/simulator/test_scheduler.py, tests/simulator/test_waiting_index.py,
tests/simulator/test_memory_stores.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from contextos_sim.invariants import Violation
from contextos_sim.mutants import MUTANTS, with_mutant
from contextos_sim.play import play
from contextos_sim.world import SimulatedWorld


@dataclass(frozen=True, slots=True)
class SeedOutcome:
    """The result of simulating one seed. `digest` covers every step: two runs of one seed have the same digest."""

    seed: int
    violations: tuple[Violation, ...]
    digest: str
    steps: int
    ends: Counter[str]
    faults: Counter[str]
    exercised: Counter[str]


@dataclass(slots=True)
class SimulationReport:
    """The sum over many seeds: all violations, and how often each end, fault and case occurred."""

    seeds_run: int = 0
    steps: int = 0
    violations: tuple[Violation, ...] = ()
    ends: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    exercised: Counter[str] = field(default_factory=Counter)

    @property
    def clean(self) -> bool:
        """Whether every invariant held."""
        return not self.violations


def simulate_seed(seed: int, plant: str | None = None) -> SeedOutcome:
    """Simulate one seed. `plant` names a bug of `MUTANTS` to put into the runtime first, which a check must then
    find.

    Raises:
        InvalidSettings: there is no such bug.
    """
    world = SimulatedWorld(seed)
    with with_mutant(plant):
        try:
            play(world)
        finally:
            world.scheduler.close()
    runs = world.checker.runs.values()
    exercised = world.exercised + Counter(
        {
            "runs": len(runs),
            "effects": len(world.shop.effects),
            "commits": world.moments["after_commit"],
            "recoveries": sum(run.kinds["run.resumed"] for run in runs),
            "sessions": sum(run.deadline_us is not None for run in runs),
            "sessions out of time": sum(run.deadline_us is not None and run.state == "exhausted" for run in runs),
            "approvals asked": sum(len(run.questions) for run in runs),
            "models asked": sum(len(run.asks) for run in runs),
            "models lost": sum(one["outcome"] == "lost" for run in runs for one in run.models.values()),
        }
    )
    return SeedOutcome(
        seed,
        tuple(world.checker.violations),
        world.scheduler.digest,
        world.scheduler.steps,
        Counter(run.state for run in runs),
        world.faults.struck,
        exercised,
    )


def simulate_seeds(
    seeds: Iterable[int], *, plant: str | None = None, progress: Callable[[int], None] | None = None
) -> SimulationReport:
    """Simulate every seed and add up the results. `progress` is called with each seed when it is done.

    `plant` names a bug of `MUTANTS` to put into the runtime first, which a check must then find.
    """
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
