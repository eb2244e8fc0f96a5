"""How long a compile takes: the example's refund, and 100 capabilities with up to 2,000 facts.

Run it with `python -m benchmarks.compile`. The cases alternate in rounds. A compile only computes, so the CPU time of
its thread is measured. The compiler is linear if doubling the facts at most doubles the time; the bar allows a tenth
more for noise.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.bars import is_quick, note, ratio, report_bar
from contextos.context.compiler import compile_context
from tests.unit.context import samples

ROOM_FOR_ALL = {"evidence": 1_000_000, "tool": 100_000}
BAR_MS, BAR_DOUBLING = 10.0, 2.2
CASES: dict[str, dict[str, Any]] = {
    "the refund, 5 facts": samples.refund(),
    "100 capabilities, 1,000 facts, default budget": samples.large(100, 1000),
    **{
        f"100 capabilities, {facts:,} facts, all kept": samples.large(100, facts, ROOM_FOR_ALL)
        for facts in (250, 500, 1000, 2000)
    },
}


def measure(rounds: int) -> dict[str, list[float]]:
    """Return the CPU milliseconds of each case by round."""
    taken: dict[str, list[float]] = {case: [] for case in CASES}
    for given in CASES.values():
        assert isinstance(compile_context(samples.as_input(given)), dict), "a refused compile measures nothing"
    for _ in range(rounds):
        for case, given in CASES.items():
            start = time.thread_time_ns()
            compile_context(samples.as_input(given))
            taken[case].append((time.thread_time_ns() - start) / 1e6)
    return taken


def report(rounds: int) -> None:
    taken = measure(rounds)
    for case, times in taken.items():
        times_sorted = sorted(times)
        p50, p99 = times_sorted[rounds // 2], times_sorted[rounds * 99 // 100]
        per_fact = p50 * 1000 / len(CASES[case]["evidence"])
        note(case, f"p50 {p50:8.3f} ms  p99 {p99:8.3f} ms  {per_fact:6.1f} us a fact")
        if "1,000" in case:
            report_bar(f"compile, {case}, p50", p50, BAR_MS, " ms", best=times_sorted[0], against=times)
    for more, fewer in ((1000, 500), (2000, 1000)):
        big, small = (taken[f"100 capabilities, {facts:,} facts, all kept"] for facts in (more, fewer))
        middle, best = ratio(big, small)
        report_bar(f"compile, {fewer:,} -> {more:,} facts, growth", middle, BAR_DOUBLING, best=best)


def main() -> None:
    report(20 if is_quick() else 100)


if __name__ == "__main__":
    main()
