"""`simulate`: run the real application under seeded faults. A broken invariant is printed with its seed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextos.cli.command_context import JsonOption
from contextos.cli.layout import folded
from contextos.cli.terminal import INTEGRITY, Heading, colourful, print_result
from contextos.contracts.encoding.display_escape import displayed
from contextos.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from contextos.sim import SimulationReport

MOST_SHOWN = 20


def simulate_command(
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, max=10_000_000, help="The number of seeds, counted from --first.")
    ] = 100,
    first: Annotated[int, typer.Option("--first", min=0, help="The first seed.")] = 0,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Run only this seed, as a failure printed it.")
    ] = None,
    plant: Annotated[str, typer.Option("--plant", metavar="BUG", help="Plant a known bug, such as skip_verify.")] = "",
    as_json: JsonOption = False,
) -> int:
    """Run the real application under seeded faults."""
    from contextos.sim import simulate_seeds
    from contextos.sim.mutants import MUTANTS

    if plant and plant not in MUTANTS:
        known = ", ".join(sorted(MUTANTS))
        raise InvalidInput(Problem("", "usage", f"`{plant}` is not a known bug", f"use one of {known}"))
    chosen = [seed] if seed is not None else range(first, first + seeds)
    with _progress(len(chosen)) as progress:
        report = simulate_seeds(chosen, plant=plant or None, progress=progress)
    print_result(_document(report, chosen, plant), _lines(report, plant), as_json=as_json)
    return 0 if report.clean else INTEGRITY


def _document(report: SimulationReport, chosen: Sequence[int], plant: str) -> dict[str, Any]:
    return {
        "seeds": {"first": chosen[0], "count": len(chosen)},
        "plant": plant or None,
        "steps": report.steps,
        "ends": dict(sorted(report.ends.items())),
        "faults": dict(sorted(report.faults.items())),
        "exercised": dict(sorted(report.exercised.items())),
        "violations": [
            {"seed": one.seed, "invariant": one.invariant, "detail": displayed(one.detail)} for one in report.violations
        ],
    }


def _lines(report: SimulationReport, plant: str) -> Iterator[str]:
    planted = f" with `{plant}` planted" if plant else ""
    yield Heading(f"{report.seeds_run} seeds, {report.steps} steps{planted}")
    for title, counts in (("ends", report.ends), ("faults", report.faults), ("exercised", report.exercised)):
        listed = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        yield from folded(f"  {title:<10} ", listed or "none")
    for one in report.violations[:MOST_SHOWN]:
        yield f"seed {one.seed} violates {one.invariant}: {displayed(one.detail)}"
        yield f"  again: contextos simulate --seed {one.seed}" + (f" --plant {plant}" if plant else "")
    hidden = len(report.violations) - MOST_SHOWN
    yield f"and {hidden} more violations" if hidden > 0 else f"{len(report.violations)} violations"


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None] | None]:
    """A progress bar on stderr where that is a terminal."""
    if total < 2 or not colourful(sys.stderr):
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task("seeds", total=total)
        yield lambda _seed: bar.advance(task)
