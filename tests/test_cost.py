"""What a run costs stays at what `benchmarks/cost.toml` states, so that a dearer feature is seen when it lands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import cost

ROOT = Path(__file__).parents[1]
VARY = frozenset({"opcodes", "bytes of entries"})
"""What differs by a few from one time to the next: ids sort differently, and an instant can end in a zero."""


@pytest.fixture(scope="module")
def found() -> cost.Costs:
    # Another process, since what this one has imported and traces would count.
    line = [sys.executable, "-m", "benchmarks.cost", "--json"]
    printed = subprocess.run(line, cwd=ROOT, check=True, capture_output=True, timeout=300)
    counted: cost.Costs = json.loads(printed.stdout)
    return counted


@pytest.mark.parametrize("flow", sorted(cost.stated()))
def test_a_flow_costs_what_the_table_states(flow: str, found: cost.Costs) -> None:
    for name, most in cost.stated()[flow].items():
        if name == "opcodes" and sys.version_info[:2] != (3, 11):
            continue
        near = most // 100 if name in VARY else 0
        remedy = "make it cheaper, or write the table (`python -m benchmarks.cost --write`) and say in it for what"
        assert found[flow][name] <= most + near, f"{name} of a {flow} rose from {most:,}: {remedy}"
        assert found[flow][name] >= most - 3 * near, (
            f"{name} of a {flow} fell from {most:,}: write the table, to keep it"
        )


def test_the_table_has_every_flow(found: cost.Costs) -> None:
    assert {name: set(counts) for name, counts in found.items()} == {
        name: set(counts) for name, counts in cost.stated().items()
    }
