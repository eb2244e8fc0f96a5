"""How long a compile takes: the refund of the seeds, and 100 capabilities with up to 2,000 facts.

Run it with `python -m benchmarks.compile`. Prints best, p50 and p99 in milliseconds, and the p50 per fact,
which stays level where the compiler is linear.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from contextos.context.compiler import compile_context
from contextos.contracts.compiled import CompiledContext
from tests.unit.context import samples

ROOM_FOR_ALL = {"evidence": 1_000_000, "tool": 100_000}


class Row(NamedTuple):
    """One measured case; times in milliseconds."""

    case: str
    facts: int
    best_ms: float
    p50_ms: float
    p99_ms: float


def measure(case: str, given: dict[str, Any], rounds: int) -> Row:
    times = []
    assert isinstance(compile_context(**given), CompiledContext), "a refused compile measures nothing"
    for _ in range(rounds):
        start = time.perf_counter_ns()
        compile_context(**given)
        times.append(time.perf_counter_ns() - start)
    times.sort()
    return Row(case, len(given["evidence"]), times[0] / 1e6, times[rounds // 2] / 1e6, times[rounds * 99 // 100] / 1e6)


def rows() -> Iterator[Row]:
    yield measure("refund", samples.refund(), 1000)
    yield measure("100 capabilities, default budget", samples.large(100, 1000), 60)
    for facts in (250, 500, 1000, 2000):
        yield measure("100 capabilities, all facts kept", samples.large(100, facts, ROOM_FOR_ALL), 60)


def main() -> None:
    for row in rows():
        per_fact = row.p50_ms * 1000 / row.facts
        times = f"best {row.best_ms:8.3f} ms  p50 {row.p50_ms:8.3f} ms  p99 {row.p99_ms:8.3f} ms"
        print(f"{row.case:34} {row.facts:5} facts  {times}  {per_fact:6.1f} us/fact")


if __name__ == "__main__":
    main()
