"""One governed write through all guards, durable, beside the two raw SQLite commits that it needs.

Run it with `python -m benchmarks.gateway`. Each `Gateway.call` of the refund is timed inside a real run, with a free
adapter and a journal that was flushed before. After each call the same bytes are inserted into a plain table of another
file in the same folder, in two commits, so that a slow disk affects both alike.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from benchmarks import outside
from benchmarks.bars import folder, is_quick, note, ratio, report_bar
from contextos.action.gateway.tool_gateway import Gateway
from contextos.contracts.envelopes.tool import ToolResultEnvelope
from contextos.contracts.journal import Batch
from contextos.contracts.ports.calls import ToolCall
from contextos.runtime import wiring
from contextos.runtime.attempts import one_plan

AMOUNT_INR = 900
COMMITS = 2


@dataclass
class Timed:
    """A gateway that records how long each write took: wall time, CPU time and commits, in µs."""

    store: outside.Watched
    wall_us: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    commits_us: list[float] = field(default_factory=list)
    gateway: Gateway | None = None

    async def call(self, call: ToolCall) -> ToolResultEnvelope:
        assert self.gateway is not None
        if self.gateway.context.scope.tools.capabilities[call.step.tool].definition.kind == "read":
            return await self.gateway.call(call)
        # Flush what earlier steps staged: it does not belong to this call.
        await self.gateway.context.journal.commit()
        self.store.batches.clear()
        cpu, start = time.thread_time_ns(), time.perf_counter_ns()
        result = await self.gateway.call(call)
        # In the run the outcome of a keyed call is durable with the next commit. Here it belongs to the call.
        await self.gateway.context.journal.commit()
        self.wall_us.append((time.perf_counter_ns() - start) / 1000)
        self.cpu_us.append((time.thread_time_ns() - cpu) / 1000)
        self.commits_us.append(sum(self.store.commits_us[-COMMITS:]))
        assert result.status == "completed", result.error
        assert len(self.store.batches) == COMMITS, "a governed write is two commits"
        return result

    def overrun(self) -> str | None:
        assert self.gateway is not None
        return self.gateway.overrun()


def size(batch: Batch) -> int:
    """Return the bytes of a batch that anyone must write: bodies of entries, documents and index lines."""
    written = [entry.body for entry in batch.entries] + [write.body for write in batch.writes]
    return sum(len(body or b"") for body in [*written, *(draft.body for _, draft in batch.shared)])


class Raw:
    """Plain SQLite: the bytes of a batch as one row, or as the rows that they are."""

    def __init__(self, path: Path) -> None:
        self._connection: sqlite3.Connection = outside.connect(path)
        self._connection.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, body BLOB)")

    def commit(self, sizes: list[int]) -> float:
        """Return the µs of one commit for each size, one row each."""
        bodies = [b"x" * count for count in sizes]
        start = time.perf_counter_ns()
        for body in bodies:
            self._connection.execute("INSERT INTO rows (body) VALUES (?)", (body,))
        return (time.perf_counter_ns() - start) / 1000

    def commit_rows(self, batches: list[Batch]) -> float:
        """Return the µs of one transaction for each batch, with a row for each of its entries and documents."""
        tables = [[(entry.body,) for entry in batch.entries] + [(w.body,) for w in batch.writes] for batch in batches]
        start = time.perf_counter_ns()
        for rows in tables:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("INSERT INTO rows (body) VALUES (?)", rows)
            self._connection.execute("COMMIT")
        return (time.perf_counter_ns() - start) / 1000


async def measure(path: Path, runs: int) -> dict[str, list[float]]:
    deployment, store = await outside.watched(path)
    timed, raw = Timed(store), Raw(path / "raw.db")
    build = wiring.build_gateway

    def timed_gateway(*given: Any) -> Timed:
        timed.gateway = build(*given)
        return timed

    plain, rows = [], []
    with patch.object(one_plan, "build_gateway", timed_gateway):
        for number in range(runs):
            view = await deployment.invoke(outside.request(number, AMOUNT_INR))
            assert view.state == "completed", view
            # The last commit of the run does not belong to the call.
            batches = store.batches[:COMMITS]
            # The first of the two alternates, because the second finds warm caches.
            if number % 2:
                rows.append(raw.commit_rows(batches))
            plain.append(raw.commit([size(batch) for batch in batches]))
            if not number % 2:
                rows.append(raw.commit_rows(batches))
    outside.close(deployment)
    warm = runs // 10
    lists = {"wall": timed.wall_us, "cpu": timed.cpu_us, "commits": timed.commits_us, "plain": plain, "rows": rows}
    return {name: taken[warm:] for name, taken in lists.items()}


def report(runs: int) -> None:
    with folder() as name:
        taken = asyncio.run(measure(Path(name), runs))
    p50 = {name: median(values) for name, values in taken.items()}
    best = min(taken["wall"]) / min(taken["plain"])
    report_bar(
        "governed write / two raw commits of the same bytes, p50",
        p50["wall"] / p50["plain"],
        2,
        best=best,
        against=taken["plain"],
    )
    note("median of the ratios of each round", f"{ratio(taken['wall'], taken['plain'])[0]:9.2f}")
    note("governed write / the same rows in two transactions, p50", f"{p50['wall'] / p50['rows']:9.2f}")
    spent = f"in its two commits {p50['commits']:.0f} us, CPU of its thread {p50['cpu']:.0f} us"
    note("governed write, p50", f"{p50['wall']:9.0f} us; {spent}")
    note("two raw commits, p50", f"{p50['plain']:9.0f} us; as rows {p50['rows']:.0f} us")


def main() -> None:
    report(60 if is_quick() else 300)


if __name__ == "__main__":
    main()
