"""`contextos-sim`: run the real application under seeded faults. A broken invariant is printed with its seed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import contextos_sim
from contextos.contracts.encoding.display_escape import displayed
from contextos_sim.mutants import MUTANTS

MOST_SHOWN: Final = 20
MAX_DIGITS: Final = 9
INTEGRITY: Final = 3


def main(line: Sequence[str] | None = None) -> int:
    """Simulate the seeds that the command line names. Returns 3 if an invariant was broken, and 0 if none was."""
    asked = _parser().parse_args(line)
    chosen = [asked.seed] if asked.seed is not None else range(asked.first, asked.first + asked.seeds)
    report = contextos_sim.simulate_seeds(chosen, plant=asked.plant, progress=_progress(len(chosen)))
    if asked.json:
        print(json.dumps(_document(report, chosen, asked.plant), ensure_ascii=False))
    else:
        print(*_lines(report, asked.plant), sep="\n")
    return 0 if report.clean else INTEGRITY


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("contextos-sim", description="Run the real application under seeded faults.")
    parser.add_argument("--seeds", type=_at_least_1, default=100, help="the number of seeds, counted from --first")
    parser.add_argument("--first", type=_count, default=0, help="the first seed")
    parser.add_argument("--seed", type=_count, help="run only this seed, as a failure printed it")
    parser.add_argument("--plant", choices=sorted(MUTANTS), help="plant a known bug")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def _at_least_1(text: str) -> int:
    if not _count(text):
        raise argparse.ArgumentTypeError("no seed proves nothing; run at least 1")
    return _count(text)


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > MAX_DIGITS:
        raise argparse.ArgumentTypeError(
            f"`{displayed(text[:40])}` is not a whole number of at most {MAX_DIGITS} digits"
        )
    return int(text)


def _document(report: contextos_sim.SimulationReport, chosen: Sequence[int], plant: str | None) -> dict[str, Any]:
    return {
        "seeds": {"first": chosen[0], "count": len(chosen)},
        "plant": plant,
        "steps": report.steps,
        "ends": dict(sorted(report.ends.items())),
        "faults": dict(sorted(report.faults.items())),
        "exercised": dict(sorted(report.exercised.items())),
        "violations": [
            {"seed": one.seed, "invariant": one.invariant, "detail": displayed(one.detail)} for one in report.violations
        ],
    }


def _lines(report: contextos_sim.SimulationReport, plant: str | None) -> Iterator[str]:
    planted = f" with `{plant}` planted" if plant else ""
    yield f"{report.seeds_run} seeds, {report.steps} steps{planted}"
    for title, counts in (("ends", report.ends), ("faults", report.faults), ("exercised", report.exercised)):
        listed = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        yield f"  {title:<10} {listed or 'none'}"
    for one in report.violations[:MOST_SHOWN]:
        yield f"seed {one.seed} violates {one.invariant}: {displayed(one.detail)}"
        yield f"  again: contextos-sim --seed {one.seed}" + (f" --plant {plant}" if plant else "")
    hidden = len(report.violations) - MOST_SHOWN
    yield f"and {hidden} more violations" if hidden > 0 else f"{len(report.violations)} violations"


def _progress(total: int) -> Any:
    """What is called with each seed that is done: on a terminal it counts them on stderr."""
    if total < 2 or not sys.stderr.isatty():
        return None
    done = iter(range(1, total + 1))

    def count(_seed: int) -> None:
        number = next(done)
        sys.stderr.write(f"\r{number} of {total} seeds" + ("\r\x1b[K" if number == total else ""))

    return count


if __name__ == "__main__":
    sys.exit(main())
