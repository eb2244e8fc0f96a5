"""Translates a group of batches into calls of the SQL function `contextos.commit_batches`, each for one tenant.

A call writes all its batches or none. Values are passed as arrays of rows (composite types of the schema), not as one
array for each column: asyncpg tests every element of an array for nesting, and rows are far fewer than fields.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from contextos.contracts.journal import CONTROL, ENTRY_FORMAT, INDEX, Batch, Draft, body_digest, genesis, open_header
from contextos.store.shared.segments import Segment

COMMIT: Final = "SELECT contextos.commit_batches($1, $2, $3, $4, $5, $6, $7, $8, $9)"

LOCK_KEY_CACHE: Final = 4096
"""Cache size in names: each commit of a run locks the same run and lease, and all commits of a tenant its index."""


@dataclass(slots=True, eq=False)
class Job:
    """A queued batch (one atomic commit), its size in bytes, the future that its caller awaits, and the segments of its
    entries.
    """

    tenant: str
    batch: Batch
    size: int
    future: asyncio.Future[None]
    segments: Sequence[Segment] = ()


def batch_bytes(batch: Batch) -> int:
    """Return the total size of all entry and document bodies of a batch, in bytes."""
    size = 0
    for entry in batch.entries:
        size += len(entry.body or b"")
    for write in batch.writes:
        size += len(write.body or b"")
    for _, draft in batch.shared:
        size += len(draft.body)
    return size


def split_into_calls(group: Iterable[Job]) -> list[list[Job]]:
    """Split queued batches into calls of the SQL function, in order. A call has one tenant, and no run twice."""
    calls: list[list[Job]] = []
    open_calls: dict[str, tuple[list[Job], set[str]]] = {}
    for job in group:
        jobs, runs = open_calls.get(job.tenant, ([], set()))
        if not jobs or job.batch.run in runs:
            jobs, runs = open_calls[job.tenant] = ([], set())
            calls.append(jobs)
        jobs.append(job)
        runs.add(job.batch.run)
    return calls


def arguments(jobs: Sequence[Job], now_us: int | None, lock_timeout: str, locks: Sequence[int]) -> tuple[Any, ...]:
    """Return the arguments of `contextos.commit_batches`, in order. None for `now_us`: the server's clock counts."""
    tenant_id, batches = jobs[0].tenant, [job.batch for job in jobs]
    return (
        tenant_id,
        now_us,
        lock_timeout,
        locks,
        [row for job in jobs for row in _segment_rows(job)],
        [
            (write.collection, write.key, write.expect, write.body, write.not_after_us, write.not_before_us)
            for batch in batches
            for write in batch.writes
        ],
        [_run_row(batch) for batch in batches if _changes_run(batch)],
        [
            (batch.run, batch.signature[0], bytes.fromhex(batch.signature[1]))
            for batch in batches
            if batch.signature is not None
        ],
        [
            _draft_row(tenant_id, stream, draft, numbers_run=_numbers_run(batch, stream, draft))
            for batch in batches
            for stream, draft in batch.shared
        ],
    )


def _segment_rows(job: Job) -> list[tuple[Any, ...]]:
    """Return the rows of a batch's segments. `erased` is empty in each."""
    if not job.segments:
        return []
    previous_hash = bytes.fromhex(job.batch.entries[0].prev_hash.removeprefix("sha256:"))
    return [(index == 0, previous_hash, job.batch.run, *row[:-1]) for index, row in enumerate(job.segments)]


def control_line(tenant: str, record: Draft) -> tuple[int, tuple[Any, ...]]:
    """Return the lock key of the tenant's control stream, and the row that adds `record` to that stream."""
    return stream_lock(tenant, CONTROL), _draft_row(tenant, CONTROL, record, numbers_run=False)


def stream_lock(tenant: str, stream: str) -> int:
    """Return the key of the advisory lock that each commit to a stream holds."""
    return _lock_key(tenant, "run", stream) >> 1


def _run_row(batch: Batch) -> tuple[Any, ...]:
    added, removed, began_us = batch.terms or ((), (), None)
    return (batch.run, batch.wake_at_us, batch.waiting, began_us, added, removed)


def _changes_run(batch: Batch) -> bool:
    """Return whether the terms or the row of the batch's run change (its wake time, mark as waiting, or number)."""
    is_numbered = any(_numbers_run(batch, stream, draft) for stream, draft in batch.shared)
    return is_numbered or any(value is not None for value in (batch.wake_at_us, batch.waiting, batch.terms))


def _numbers_run(batch: Batch, stream: str, draft: Draft) -> bool:
    """Return whether this draft is a line of the index about the batch's own run: the first one numbers the run."""
    return stream == INDEX and draft.key == batch.run


def _draft_row(tenant_id: str, stream: str, draft: Draft, *, numbers_run: bool) -> tuple[Any, ...]:
    """Return the row of a draft for a shared stream. The database finds its sequence and previous hash."""
    kind, key, at_us, by, body, salt = draft
    digest = body_digest(salt, body)
    header = open_header(tenant_id, stream, digest, draft)
    row = (kind, key, at_us, by, digest, *header, body, salt, ENTRY_FORMAT)
    return (stream, genesis(tenant_id, stream), *row, numbers_run)


def lock_keys(group: Iterable[Job]) -> list[int]:
    """Return the sorted advisory lock keys for a group of batches: odd keys are exclusive (writes), even
    ones shared.
    """
    exclusive, shared = set[int](), set[int]()
    for job in group:
        tenant_id, batch = job.tenant, job.batch
        exclusive.add(_lock_key(tenant_id, "run", batch.run))
        for stream, _ in batch.shared:
            exclusive.add(_lock_key(tenant_id, "run", stream))
        for write in batch.writes:
            (shared if write.body is None else exclusive).add(_lock_key(tenant_id, write.collection, write.key))
    return sorted([key + 1 for key in exclusive] + list(shared - exclusive))


@lru_cache(maxsize=LOCK_KEY_CACHE)
def _lock_key(tenant_id: str, collection: str, key: str) -> int:
    """Return an even advisory lock key for a name. Two names with the same key merely wait for each other."""
    digest = hashlib.blake2b(f"{tenant_id}\0{collection}\0{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True) & ~1
