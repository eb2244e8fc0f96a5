"""A page of a search for runs among many: `python -m benchmarks.search`.

The runs are lines of the index with their terms, written through the store in commits of many batches. The runs that
fit are whole, and a page reads and verifies them. Each size is a store of its own; the last one is searched by two
common terms, too.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median

from benchmarks.bars import folder as data_folder
from benchmarks.bars import is_quick, note, report_bar
from benchmarks.verify import AT_ONCE, KEYS, SALT, TENANT, synthetic
from contextos.contracts.entries.terms import ANY_RUN, term
from contextos.contracts.journal import INDEX, Batch, Draft, Sought, TermChange
from contextos.deployment.queries.checked_run import read_checked
from contextos.deployment.queries.run_index import found_runs
from contextos.store.sqlite.stores import SqliteStores

SIZES, QUICK = (1_000, 10_000, 100_000), (100, 1_000, 10_000)
FITS = 5
ROUNDS = 30
MOST_MS = 20.0
SOUGHT = (term("subject", "customer:cus_79"),)
COMMON = (term("rule", "R_ALLOW"),)


def indexed(number: int) -> Batch:
    """The line of the index and the terms of a run that does not fit."""
    run = f"run_{number:016x}"
    line = Draft("run.indexed", run, number + 1, "runtime", b"{}", SALT)
    own = (term("subject", f"customer:cus_{number}"), term("decision", f"dr_{number}"))
    terms = (ANY_RUN, *COMMON, term("user", f"usr_{number % 100}"), term("status", "DECIDED"), *own)
    return Batch(run, shared=((INDEX, line),), wake_at_us=0, terms=TermChange(terms, (), number + 1))


def fitting(number: int) -> Batch:
    """A run that fits."""
    batch = synthetic(number)
    return Batch(
        batch.run,
        batch.entries,
        batch.writes,
        batch.shared,
        wake_at_us=0,
        signature=batch.signature,
        terms=TermChange((ANY_RUN, *SOUGHT, *COMMON), (), number + 1),
    )


async def fill(stores: SqliteStores, runs: int) -> None:
    """Store this many runs, of which `FITS` fit, spread evenly."""
    store, step = stores.tenant(TENANT), runs // FITS
    batches = [fitting(number) if number % step == 0 else indexed(number) for number in range(runs)]
    for start in range(0, runs, AT_ONCE):
        await asyncio.gather(*map(store.commit, batches[start : start + AT_ONCE]))


async def page_ms(stores: SqliteStores, *terms: tuple[int, ...]) -> list[float]:
    """Time one page (CPU of this thread): the runs that a search finds, each read and verified."""
    store, taken = stores.tenant(TENANT), []
    for _ in range(ROUNDS):
        begun, found = time.thread_time(), 0
        async for line in found_runs(store, TENANT, Sought(terms)):
            found += (await read_checked(store, TENANT, KEYS, line.key)).fault is None
        taken.append((time.thread_time() - begun) * 1000)
        assert found == FITS, found
    return taken


async def measure(path: Path, sizes: tuple[int, ...]) -> None:
    small: list[float] = []
    for runs in sizes:
        stores = SqliteStores(path / f"{runs}.db")
        await fill(stores, runs)
        taken = await page_ms(stores, SOUGHT)
        small = small or taken
        report_bar(f"page by subject, {runs:,} runs, p50", median(taken), MOST_MS, " ms", best=min(taken))
        report_bar(f"page by subject, {runs:,} runs / {sizes[0]:,}", median(taken) / median(small), 1.5)
        note(
            f"by a common rule first, then the subject, {runs:,} runs",
            f"{median(await page_ms(stores, COMMON, SOUGHT)):9.2f} ms",
        )
        stores.close()


def main() -> None:
    with data_folder() as path:
        asyncio.run(measure(Path(path), QUICK if is_quick() else SIZES))


if __name__ == "__main__":
    main()
