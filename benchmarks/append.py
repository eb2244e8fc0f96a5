"""Journal entries by 32 writers at once: `PostgresStore.commit` beside what a careful person writes by hand.

By hand is one connection that inserts whatever is queued in one transaction: the same columns under the same primary
key, with `executemany` or as one statement over arrays. It checks no sequence, hash or deadline, takes no lock and
knows no tenants. Shown beside it is a connection for each writer, with PostgreSQL's own group commit.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

from benchmarks.bars import judge, note, ratio
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
    """A run of `count` entries."""
    head, made = genesis("acme", run), list[Entry]()
    for number in range(1, count + 1):
        made.append(link("acme", run, number, head, Draft("run.context", "", 5, "runtime", BODY, SALT)))
        head = made[-1].hash
    return made


class ByHand:
    """Group commit by hand: what is queued while a transaction is under way is the next one."""

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
    """Entries a second, one a commit, by all writers at once."""
    work = [stream(f"run_{name}_{writer}", each) for writer in range(WRITERS)]

    async def writer(number: int) -> None:
        for entry in work[number]:
            await append(number, entry)

    start = time.perf_counter()
    await asyncio.gather(*map(writer, range(WRITERS)))
    return WRITERS * each / (time.perf_counter() - start)


async def measure(database: Database, *, each: int, rounds: int) -> None:
    """Every side takes its turn in each round; the first round warms them up."""
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
            found = await rate(append, f"{number}_{name}", each)
            if number:
                rates[name].append(found)
    ours = rates.pop("ours")
    for name, theirs in rates.items():
        middle, best = ratio(ours, theirs)[0], max(ours) / max(theirs)
        label = f"append, {WRITERS} writers: entries/s, ours / {name}"
        if name == "by hand, executemany":
            slowness = [1 / one for one in theirs]
            judge(label, middle, 0.7, best=best, at_least=True, against=slowness)
        else:
            note(label, f"{middle:9.2f}    best {best:9.2f}")
    for name, found_rates in {"ours": ours, **rates}.items():
        note(f"append, {WRITERS} writers: {name}", f"{median(found_rates):9,.0f} entries/s")
    for connection in connections:
        await connection.close()
    await stores.aclose()
