"""How a benchmark says what it found: one line a bar, `PASS` or `MISS`, which `run.py` gathers into one table.

Numbers are printed and never asserted: a machine that is busy is no defect. A ratio is taken inside each round of one
run and the median over the rounds is judged, so that the machine cancels out; `best` is the ratio of the two minima,
which a neighbour's noise touches least. `(busy)` says that the machine was too busy: measure again.
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
"""Where the other side's median is so many times its minimum, the machine was too busy to be believed."""


def judge(
    label: str,
    value: float,
    bar: float,
    unit: str = "",
    *,
    best: float | None = None,
    at_least: bool = False,
    against: Sequence[float] = (),
) -> None:
    """Print one bar and whether it holds; `against` are the other side's times: they tell whether it was quiet."""
    good = value >= bar if at_least else value <= bar
    lowest = "" if best is None else f"best {best:9.2f}{unit}"
    allowed = f"at {'least' if at_least else 'most'} {bar:g}{unit}"
    busy = "  (busy)" if against and median(against) > BUSY * min(against) else ""
    mark = "PASS" if good else "MISS"
    print(f"{mark}  {label:<{WIDTH}} {value:9.2f}{unit:<3} {lowest:<18} {allowed}{busy}", flush=True)


def skip(label: str, why: str) -> None:
    """Print that a bar was not measured, and what is missing."""
    print(f"SKIP  {label:<{WIDTH}} {why}", flush=True)


def note(label: str, text: str) -> None:
    """Print a number that has no bar."""
    print(f"      {label:<{WIDTH}} {text}", flush=True)


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """(median of the ratios of each round, ratio of the two minima)."""
    rounds = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return median(rounds), min(ours) / min(theirs)


def is_quick() -> bool:
    """Whether `--quick` was given: fewer rounds, the same ratios with more noise."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    return bool(parser.parse_args().quick)


def folder() -> tempfile.TemporaryDirectory[str]:
    """A directory on the disk to be measured: under `BENCH_DATA`, else where temporary files go."""
    return tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DATA"))
