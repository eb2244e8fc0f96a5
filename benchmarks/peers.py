"""The whole refund beside LangGraph, DBOS and the hand-written floor: `python -m benchmarks.peers`.

The peers and their harness are in a folder of their own, `BENCH_PEERS` (default `../shared/bench`). They are run by
`BENCH_PYTHON`, an interpreter with the peers' libraries and what ContextOS needs. Rounds go floor, langgraph, dbos,
contextos; the bars apply to the median of the ratios of each round. A peer that is missing is named and left out.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterable
from io import StringIO
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.bars import is_quick, note, report_bar, skip

HERE = Path(__file__).resolve().parent
OURS = HERE / "peer_contextos.py"
OTHERS = ("floor", "langgraph", "dbos")


class Case(NamedTuple):
    """A case and the bars of its ratios. The floor's bar is an upper bound, the others are lower bounds."""

    title: str
    amount: int
    concurrency: int
    floor: float | None
    langgraph: float
    dbos: float | None


CASES = (
    Case("no gate", 900, 1, 3.6, 1.6, 1.9),
    Case("approval", 4200, 1, None, 1.35, 2.6),
    Case("16 at once", 900, 16, None, 1.8, None),
    Case("16 at once, approval", 4200, 16, None, 1.5, None),
)

Rounds = dict[str, list[dict[str, Any]]]


def shared() -> Path:
    """Return the peers' folder."""
    return Path(os.environ.get("BENCH_PEERS", HERE.parent.parent / "shared" / "bench")).resolve()


def python() -> str:
    """Return the interpreter that runs the peers."""
    return os.environ.get("BENCH_PYTHON", sys.executable)


def collect(compare: Any, case: Case, runs: int, rounds: int) -> tuple[Rounds, dict[str, str]]:
    """Return the rows of each peer by round, and why peers were left out. A peer left out once is in no ratio."""
    paths = {name: str(shared() / f"peer_{name}.py") for name in OTHERS} | {"contextos": str(OURS)}
    wanted = (case.amount, case.concurrency, 0)
    found, skipped = compare.collect(python(), list(paths.values()), runs, rounds, [wanted], StringIO())
    results = {name: found.get((name, wanted), []) for name in paths}
    return results, {name: skipped[path] for name, path in paths.items() if path in skipped}


def ratios(rounds: list[tuple[float, float]], extreme: Callable[[Iterable[float]], float]) -> tuple[float, float]:
    """Return the median of the ratios of each round, and the ratio of the two best values of any round."""
    over, under = zip(*rounds, strict=True)
    return median(one / other for one, other in rounds), extreme(over) / extreme(under)


def report(case: Case, results: Rounds, left_out: dict[str, str]) -> None:
    ours, floor = results["contextos"], [row["p50_ms"] for row in results["floor"]]
    for name in OTHERS:
        bar, over_floor = getattr(case, name), name == "floor"
        label = f"{case.title}: contextos / floor" if over_floor else f"{case.title}: {name} / contextos"
        missing = next((one for one in ("contextos", name) if one in left_out), None)
        if missing is not None:
            if bar is not None:
                skip(label, f"{missing}: {left_out[missing]}")
            continue
        pairs = list(zip(ours, results[name], strict=True))
        if case.concurrency > 1:
            label = f"{case.title}: runs/s, contextos / {name}"
            middle, best = ratios([(a["runs_per_s"], b["runs_per_s"]) for a, b in pairs], max)
        elif over_floor:
            middle, best = ratios([(a["p50_ms"], b["p50_ms"]) for a, b in pairs], min)
        else:
            middle, best = ratios([(b["p50_ms"], a["p50_ms"]) for a, b in pairs], min)
        if bar is None:
            note(label, f"{middle:9.2f}    best {best:9.2f}")
        else:
            report_bar(label, middle, bar, best=best, at_least=not over_floor, against=floor)
    for name, rows in results.items():
        if name not in left_out:
            note(f"{case.title}: {name}", absolutes(rows))


def absolutes(rows: list[dict[str, Any]]) -> str:
    """Return a peer's medians over the rounds, and how many runs were not paid exactly once."""
    p50, rate, cpu = (median(row[field] for row in rows) for field in ("p50_ms", "runs_per_s", "cpu_ms_per_run"))
    wrong = sum(row["not_paid_once"] for row in rows)
    text = f"p50 {p50:8.2f} ms  {rate:6.0f} runs/s  CPU {cpu:6.2f} ms a run"
    return text + (f"  WRONG: {wrong} runs not paid exactly once" if wrong else "")


def main() -> None:
    quick = is_quick()
    script = shared() / "compare.py"
    if not script.exists():
        skip("whole refund beside the peers", f"no `{script}`; set BENCH_PEERS; `floor.py` has a floor of its own")
        return
    if "BENCH_PYTHON" not in os.environ:
        note("BENCH_PYTHON is not set", "peers that this interpreter has not installed are left out")
    spec = importlib.util.spec_from_file_location("compare", script)
    assert spec is not None
    assert spec.loader is not None
    compare = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(compare)
    for case in CASES:
        report(case, *collect(compare, case, 40 if quick else 150, 2 if quick else 6))


if __name__ == "__main__":
    main()
