"""What the writer says to PostgreSQL: the batches of a group as calls of `contextos.commit_batches`, one for a tenant.

All batches of a call hold or none does. What is written goes as arrays of rows (the composite types of the schema):
asyncpg looks at each element of an array to see whether it is an array itself, and would look at each field of columns.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from contextos.contracts.journal import ENTRY_FORMAT, INDEX, Batch, Draft, body_digest, genesis, open_header

COMMIT: Final = "SELECT contextos.commit_batches($1, $2, $3, $4, $5, $6, $7, $8, $9)"

LOCK_SLOTS: Final = 4096
"""Of so many names the place is kept: a run's and its lease's recur in each of its commits, a tenant's index in all."""


@dataclass(slots=True, eq=False)
class Job:
    """A batch that waits to be committed, the bytes in it, and who waits for it."""

    tenant: str
    batch: Batch
    size: int
    future: asyncio.Future[None]


def size_of(batch: Batch) -> int:
    """The bytes of all bodies of a batch."""
    size = 0
    for entry in batch.entries:
        size += len(entry.body or b"")
    for write in batch.writes:
        size += len(write.body or b"")
    for _, draft in batch.shared:
        size += len(draft.body)
    return size


def parted(group: Iterable[Job]) -> list[list[Job]]:
    """What may share a call, in order: the jobs of one tenant, a run at most once."""
    calls: list[list[Job]] = []
    growing: dict[str, tuple[list[Job], set[str]]] = {}
    for job in group:
        jobs, runs = growing.get(job.tenant, ([], set()))
        if not jobs or job.batch.run in runs:
            jobs, runs = growing[job.tenant] = ([], set())
            calls.append(jobs)
        jobs.append(job)
        runs.add(job.batch.run)
    return calls


def arguments(jobs: Sequence[Job], now_us: int | None, patience: str, locks: Sequence[int]) -> tuple[Any, ...]:
    """The arguments of `contextos.commit_batches`, in its order."""
    tenant, batches = jobs[0].tenant, [job.batch for job in jobs]
    return (
        tenant,
        now_us,
        patience,
        locks,
        [(place == 0, *entry[1:]) for batch in batches for place, entry in enumerate(batch.entries)],
        [
            (one.collection, one.key, one.expect, one.body, one.not_after_us, one.not_before_us)
            for batch in batches
            for one in batch.writes
        ],
        [(batch.run, batch.wake_at_us, batch.waiting) for batch in batches if _changes_run(batch)],
        [(batch.run, *batch.signature) for batch in batches if batch.signature is not None],
        [_drafted(tenant, batch, stream, draft) for batch in batches for stream, draft in batch.shared],
    )


def _changes_run(batch: Batch) -> bool:
    """Whether the row of the batch's run changes: its wake time, its mark as waiting, or its number."""
    numbered = any(_numbers_run(batch, stream, draft) for stream, draft in batch.shared)
    return numbered or batch.wake_at_us is not None or batch.waiting is not None


def _numbers_run(batch: Batch, stream: str, draft: Draft) -> bool:
    """Whether this is a line of the index about the batch's own run: the first one is the run's number."""
    return stream == INDEX and draft.key == batch.run


def _drafted(tenant: str, batch: Batch, stream: str, draft: Draft) -> tuple[Any, ...]:
    """A draft for a shared stream, whose place in the chain the database finds."""
    kind, key, at_us, by, body, salt = draft
    digest = body_digest(salt, body)
    header = open_header(tenant, stream, digest, draft)
    stored = (kind, key, at_us, by, digest, *header, body, salt, ENTRY_FORMAT)
    return (stream, genesis(tenant, stream), *stored, _numbers_run(batch, stream, draft))


def locked(group: Iterable[Job]) -> list[int]:
    """What the transaction of a group locks, in order: alone (odd) what it writes, shared (even) what it looks at."""
    alone, looked = set[int](), set[int]()
    for job in group:
        tenant, batch = job.tenant, job.batch
        alone.add(_place(tenant, "run", batch.run))
        for stream, _ in batch.shared:
            alone.add(_place(tenant, "run", stream))
        for write in batch.writes:
            (looked if write.body is None else alone).add(_place(tenant, write.collection, write.key))
    return sorted([place + 1 for place in alone] + list(looked - alone))


@lru_cache(maxsize=LOCK_SLOTS)
def _place(tenant: str, collection: str, key: str) -> int:
    """Twice the number under which PostgreSQL locks a name. Two names with one number only wait for each other."""
    digest = hashlib.blake2b(f"{tenant}\0{collection}\0{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True) & ~1
