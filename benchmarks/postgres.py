"""ContextOS on a PostgreSQL server of its own, with fsync: `python -m benchmarks.postgres`.

A whole refund beside the same rows written by hand with asyncpg in the same number of commits; journal entries by 32
concurrent writers (`append.py`); two and four worker processes beside one (`workers.py`); one tenant where a commit
takes 20 ms (`slow_commits.py`); and the cost of a run as its tenant's journal grows (`growth.py`). The server keeps its
files in the system's temporary directory, whatever `BENCH_DATA` is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import append, growth, outside, refund_pack, slow_commits, workers
from benchmarks.bars import folder, is_quick, note, report_bar
from benchmarks.deployed import AMOUNT_INR, closed, new_folder, opened, timed
from benchmarks.refund_pack import TENANT
from contextos.contracts.journal import Batch, link
from contextos.store.postgres.connections import connect_postgres
from tests.postgres import Database, own_server

ROWS = {
    "journal": (
        "tenant text, run text, seq bigint, kind text, key text, at_us bigint, by text, body_digest text,"
        " prev_hash text, hash text, body bytea, salt bytea, v integer, PRIMARY KEY (tenant, run, seq)"
    ),
    "documents": (
        "tenant text, collection text, key text, version bigint, body bytea, PRIMARY KEY (tenant, collection, key)"
    ),
    "runs": "tenant text, run text, wake_at_us bigint, PRIMARY KEY (tenant, run)",
    "heads": "tenant text, run text, seq bigint, kid text, hash text, sig text, PRIMARY KEY (tenant, run, seq, kid)",
}
ENTRY = f"INSERT INTO by_hand.journal VALUES ({', '.join(f'${number}' for number in range(1, 14))})"
NEW = "INSERT INTO by_hand.documents VALUES ($1, $2, $3, 1, $4)"
NEXT = (
    "UPDATE by_hand.documents SET version = version + 1, body = $4 WHERE tenant = $1 AND collection = $2 AND key = $3"
)
WAKE = (
    "INSERT INTO by_hand.runs VALUES ($1, $2, $3)"
    " ON CONFLICT (tenant, run) DO UPDATE SET wake_at_us = excluded.wake_at_us"
)
HEAD = "INSERT INTO by_hand.heads VALUES ($1, $2, $3, $4, $5, $6)"


class ByHand:
    """Writes the rows of a run by hand: one transaction a commit, one statement for each kind of row."""

    def __init__(self, connection: Any, shop: outside.Shop) -> None:
        self._connection, self._shop, self._index = connection, shop, 0

    async def run(self, request: dict[str, Any], batches: Sequence[Batch]) -> None:
        """Call the refund's tools and write the rows of its commits."""
        context = request["input"]["context"]
        self._shop.orders_lookup(context["order_id"])
        self._shop.policy_eval(request["input"])
        for number, batch in enumerate(batches):
            await self._commit(batch)
            if number == 1:
                self._shop.issue_refund(request["request_id"], context["order_id"], context["refund_amount"])

    async def _commit(self, batch: Batch) -> None:
        connection, entries = self._connection, list(batch.entries)
        for stream, draft in batch.shared:
            self._index += 1
            entries.append(link(TENANT, stream, self._index, "sha256:" + "0" * 64, draft))
        async with connection.transaction():
            await connection.executemany(ENTRY, entries)
            for write in batch.writes:
                if write.body is not None:
                    await connection.execute(
                        NEXT if write.expect else NEW, TENANT, write.collection, write.key, write.body
                    )
            if batch.wake_at_us is not None:
                await connection.execute(WAKE, TENANT, batch.run, batch.wake_at_us)
            if batch.signature is not None:
                last = batch.entries[-1]
                await connection.execute(
                    HEAD, TENANT, batch.run, last.seq, batch.signature[0], last.hash, batch.signature[1]
                )


async def refunds(database: Database, path: Path, count: int) -> None:
    """Measure refunds by one worker, one at a time, in turns with the same rows by hand."""
    shop = outside.Shop(new_folder(path, "shop"), keyed=True)
    tools = refund_pack.Tools(shop, "", keyed=True)
    deployment = await opened(database.app, new_folder(path, "refunds"), tools)
    watched, store = outside.watch(deployment)
    by_hand_shop, connection = (
        outside.Shop(new_folder(path, "by_hand"), keyed=True),
        await connect_postgres(database.owner),
    )
    await connection.execute("CREATE SCHEMA by_hand")
    for table, columns in ROWS.items():
        await connection.execute(f"CREATE TABLE by_hand.{table} ({columns})")
    by_hand, ours, theirs, commits = ByHand(connection, by_hand_shop), list[float](), list[float](), list[float]()
    for number in range(count):
        store.batches.clear()
        store.commits_us.clear()
        store.calls.clear()
        ours.append(await timed(watched, number))
        commits.append(sum(store.commits_us) / 1e3)
        start = time.perf_counter()
        await by_hand.run(outside.request(number, AMOUNT_INR), store.batches)
        theirs.append((time.perf_counter() - start) * 1e3)
    asked = ", ".join(f"{times} {name}" for name, times in sorted(store.calls.items()))
    warm = count // 10
    ours, theirs = ours[warm:], theirs[warm:]
    label = "refund run without a gate / the same rows by asyncpg, p50"
    report_bar(label, median(ours) / median(theirs), 2, best=min(ours) / min(theirs), against=theirs)
    spent = f"{median(ours):9.2f} ms, in its commits {median(commits[warm:]):.2f} ms; by hand {median(theirs):.2f} ms"
    note("refund run, p50", spent)
    note("refund run, what it asks of the store", asked)
    await connection.close()
    await closed(deployment)
    shop.close()
    by_hand_shop.close()


def main() -> None:
    quick = is_quick()
    with folder() as name, own_server(fsync=True) as server:
        path = Path(name)
        assert server.execute("SHOW fsync")[0][0] == "on", "a commit that does not sync measures nothing"
        asyncio.run(refunds(server.database(), path, 60 if quick else 300))
        asyncio.run(append.measure(server.database(), each=50 if quick else 150, rounds=3 if quick else 9))
        databases = [server.database() for _ in range(2)]
        workers.measure(databases, path, runs=100 if quick else 400, rounds=3 if quick else 7)
        databases = [server.database() for _ in range(3)]
        asyncio.run(slow_commits.measure(databases, path, runs=200 if quick else 600, rounds=3 if quick else 7))
        large, count = (200_000, 60) if quick else (1_000_000, 300)
        databases = [server.database() for _ in range(2)]
        asyncio.run(growth.measure(databases, path, small=10_000, large=large, count=count))


if __name__ == "__main__":
    main()
