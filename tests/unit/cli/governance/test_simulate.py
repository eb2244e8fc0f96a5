"""`simulate` on the command line; what the simulator finds is proved where it lives."""

from __future__ import annotations

from collections import Counter

import pytest

import contextos.sim
from contextos.sim import SimulationReport
from contextos.sim.invariants import Violation


def test_seeds_that_hold_are_counted(say) -> None:
    said = say("simulate", "--seeds", "2", "--json")
    assert (said.code, said.json["violations"]) == (0, [])
    assert said.json["seeds"] == {"first": 0, "count": 2}


def test_a_violation_is_printed_with_the_seed_that_shows_it_again(say, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Violation(seed=7, step=3, invariant="paid_once", detail="paid twice \x1b")
    asked: list[list[int]] = []

    def run(seeds, *, plant, progress) -> SimulationReport:
        asked.append(list(seeds))
        return SimulationReport(1, 10, (found,), Counter(), Counter(), Counter())

    monkeypatch.setattr(contextos.sim, "simulate_seeds", run)
    said = say("simulate", "--seed", "7", "--plant", "retry_uncertain")
    assert said.code == 3
    assert asked == [[7]]
    assert "seed 7 violates paid_once: paid twice \\u001b" in said.out
    assert "contextos simulate --seed 7 --plant retry_uncertain" in said.out
