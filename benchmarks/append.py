"""Journal entries by 32 concurrent writers: `PostgresStore.commit` beside hand-written group commit.

By hand, one connection inserts the queued entries in one transaction: the same columns under the same primary key, with
`executemany` or as one statement over arrays. It checks no sequence, hash or deadline, takes no lock and knows no
tenants. Also shown: one connection for each writer, with PostgreSQL's own group commit.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

from benchmarks.bars import note, ratio, report_bar
from contextos.contracts.journal import Batch, Draft, Entry, genesis, link
from contextos.store.postgres.connections import connect_postgres
from contextos.store.postgres.stores import PostgresStores
from tests.postgres import Database

WRITERS = 32
GROUP = 64
BODY, SALT = b'{"text":"' + b"x" * 300 + b'"}', b"0123456789abcdef"
TABLE = (
    'CREATE TABLE public.raw (tenant text COLLATE "C", run text COLLATE "C", seq bigint, kind text, key text,'
    " at_us bigint, by text, body_digest text, prev_hash text, hash text, body bytea, salt bytea, v integer,"
    " PRIMARY KEY (tenant, run, seq))"
)
TYPES = ("text", "text", "bigint", "text", "text", "bigint", "text", "text", "text", "text", "bytea", "bytea", "int")
ROW = f"INSERT INTO public.raw VALUES ({', '.join(f'${n}' for n in range(1, 14))})"
COLUMNS = ", ".join(f"${number}::{type_}[]" for number, type_ in enumerate(TYPES, 1))
ROWS = f"INSERT INTO public.raw SELECT * FROM unnest({COLUMNS})"

Append = Callable[[int, Entry], Awaitable[object]]


def stream(run: str, count: int) -> list[Entry]:
    """Return a run of `count` linked entries."""
    head, entries = genesis("acme", run), list[Entry]()
    for number in range(1, count + 1):
        entries.append(link("acme", run, number, head, Draft("run.context", "", 5, "runtime", BODY, SALT)))
        head = entries[-1].hash
    return entries


class ByHand:
    """Group commit by hand: entries queued during a transaction are inserted by the next one."""

    def __init__(self, connection: Any, *, arrays: bool) -> None:
        self._connection, self._arrays = connection, arrays
        self._queue: deque[tuple[Entry, asyncio.Future[None]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def append(self, _: int, entry: Entry) -> None:
        future = asyncio.get_running_loop().create_future()
        self._queue.append((entry, future))
        if self._task is None:
            self._task = asyncio.ensure_future(self._drain())
        await future

    async def _drain(self) -> None:
        while self._queue:
            group = [self._queue.popleft() for _ in range(min(GROUP, len(self._queue)))]
            entries = [entry for entry, _ in group]
            if self._arrays:
                await self._connection.execute(ROWS, *map(list, zip(*entries, strict=True)))
            else:
                await self._connection.executemany(ROW, entries)
            for _, future in group:
                future.set_result(None)
        self._task = None


async def rate(append: Append, name: str, each: int) -> float:
    """Return the entries per second of all writers together, one entry a commit."""
    work = [stream(f"run_{name}_{writer}", each) for writer in range(WRITERS)]

    async def writer(number: int) -> None:
        for entry in work[number]:
            await append(number, entry)

    start = time.perf_counter()
    await asyncio.gather(*map(writer, range(WRITERS)))
    return WRITERS * each / (time.perf_counter() - start)


async def measure(database: Database, *, each: int, rounds: int) -> None:
    """Measure the sides in alternating rounds; the first round only warms up."""
    stores = PostgresStores(database.app)
    store = stores.tenant("acme")
    connections = [await connect_postgres(database.owner) for _ in range(WRITERS + 2)]
    await connections[0].execute(TABLE)
    sides: dict[str, Append] = {
        "ours": lambda _, entry: store.commit(Batch(entry.run, (entry,))),
        "by hand, executemany": ByHand(connections[-1], arrays=False).append,
        "by hand, arrays": ByHand(connections[-2], arrays=True).append,
        "a connection for each writer": lambda writer, entry: connections[writer].execute(ROW, *entry),
    }
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, append in sides.items():
            measured_rate = await rate(append, f"{number}_{name}", each)
            if number:
                rates[name].append(measured_rate)
    ours = rates.pop("ours")
    for name, other_rates in rates.items():
        median_ratio, best = ratio(ours, other_rates)[0], max(ours) / max(other_rates)
        label = f"append, {WRITERS} writers: entries/s, ours / {name}"
        if name == "by hand, executemany":
            slowness = [1 / one for one in other_rates]
            report_bar(label, median_ratio, 0.7, best=best, at_least=True, against=slowness)
        else:
            note(label, f"{median_ratio:9.2f}    best {best:9.2f}")
    for name, name_rates in {"ours": ours, **rates}.items():
        note(f"append, {WRITERS} writers: {name}", f"{median(name_rates):9,.0f} entries/s")
    for connection in connections:
        await connection.close()
    await stores.aclose()
