"""`contextos-sim` on the command line; what the simulator finds is proved in the other tests here."""

from __future__ import annotations

import json
from collections import Counter

import pytest

import contextos_sim
from contextos_sim import SimulationReport
from contextos_sim.command import main
from contextos_sim.invariants import Violation


def test_seeds_that_hold_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["violations"] == []
    assert said["seeds"] == {"first": 0, "count": 2}


@pytest.mark.parametrize(
    "line",
    [
        ["--plant", "tulip"],
        ["--seed", "-1"],
        ["--seeds", "\x1b"],
        ["--seeds", "9" * 20],
        ["--first", "9" * 20],
        ["--seeds", "0"],
    ],
)
def test_what_is_wrong_with_the_line_is_said(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line)
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert line[0] in said
    assert "\x1b" not in said


def test_a_violation_is_printed_with_the_seed_that_shows_it_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Violation(seed=7, step=3, invariant="paid_once", detail="paid twice \x1b")
    asked: list[list[int]] = []

    def run(seeds, *, plant, progress) -> SimulationReport:
        asked.append(list(seeds))
        return SimulationReport(1, 10, (found,), Counter(), Counter(), Counter())

    monkeypatch.setattr(contextos_sim, "simulate_seeds", run)
    assert main(["--seed", "7", "--plant", "retry_uncertain"]) == 3
    said = capsys.readouterr().out
    assert asked == [[7]]
    assert "seed 7 violates paid_once: paid twice \\u001b" in said
    assert "contextos-sim --seed 7 --plant retry_uncertain" in said
