"""How a benchmark prints its results: one line a bar, `PASS` or `MISS`, which `run.py` gathers into one table.

Numbers are printed and never asserted: a busy machine is not a defect. A bar is checked against the median of the
ratios of each round, so that the machine cancels out. `best` is the ratio of the two minima, which other load on the
machine affects least. `(busy)` means that the machine was too busy: measure again.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from statistics import median
from typing import Final

MARKS: Final = ("PASS", "MISS", "SKIP")
WIDTH: Final = 66
BUSY: Final = 2.0
"""If the other side's median exceeds its minimum by this factor, the machine was too busy."""


def report_bar(
    label: str,
    value: float,
    bar: float,
    unit: str = "",
    *,
    best: float | None = None,
    at_least: bool = False,
    against: Sequence[float] = (),
) -> None:
    """Print a bar and whether it holds. `against` are the other side's times, which show a busy machine."""
    holds = value >= bar if at_least else value <= bar
    best_text = "" if best is None else f"best {best:9.2f}{unit}"
    allowed = f"at {'least' if at_least else 'most'} {bar:g}{unit}"
    busy = "  (busy)" if against and median(against) > BUSY * min(against) else ""
    mark = "PASS" if holds else "MISS"
    print(f"{mark}  {label:<{WIDTH}} {value:9.2f}{unit:<3} {best_text:<18} {allowed}{busy}", flush=True)


def skip(label: str, reason: str) -> None:
    """Print that a bar was not measured, and what is missing."""
    print(f"SKIP  {label:<{WIDTH}} {reason}", flush=True)


def note(label: str, text: str) -> None:
    """Print a number that has no bar."""
    print(f"      {label:<{WIDTH}} {text}", flush=True)


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """Return the median of the ratios of each round, and the ratio of the two minima."""
    rounds = [our / other for our, other in zip(ours, theirs, strict=True)]
    return median(rounds), min(ours) / min(theirs)


def is_quick() -> bool:
    """Whether `--quick` was given: fewer rounds, the same ratios with more noise."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    return bool(parser.parse_args().quick)


def folder() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary directory on the disk to measure: under `BENCH_DATA` if it is set."""
    return tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DATA"))
