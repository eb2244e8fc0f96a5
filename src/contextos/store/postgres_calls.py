"""What the writer says to PostgreSQL: the batches of a group as calls of `contextos.commit_batches`, one for a tenant.

All batches of a call hold or none does. What is written goes as arrays of rows (the composite types of the schema):
asyncpg looks at each element of an array to see whether it is an array itself, and would look at each field of columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

from contextos.contracts.journal import ENTRY_FORMAT, Batch, Draft, body_digest, genesis, open_header

Job = tuple[str, Batch]
"""A batch and its tenant."""

COMMIT: Final = "SELECT contextos.commit_batches($1, $2, $3, $4, $5, $6, $7, $8, $9)"


def parted(group: Iterable[Job]) -> list[list[int]]:
    """The places of the batches that may share a call, in order: those of one tenant, a run at most once."""
    calls: list[list[int]] = []
    growing: dict[str, tuple[list[int], set[str]]] = {}
    for number, (tenant, batch) in enumerate(group):
        numbers, runs = growing.get(tenant, ([], set()))
        if not numbers or batch.run in runs:
            numbers, runs = growing[tenant] = ([], set())
            calls.append(numbers)
        numbers.append(number)
        runs.add(batch.run)
    return calls


def arguments(
    tenant: str, batches: Sequence[Batch], now_us: int | None, patience: str, locks: dict[int, bool]
) -> tuple[Any, ...]:
    """The arguments of `contextos.commit_batches`, in its order."""
    return (
        tenant, now_us, patience, list(locks.items()),
        [(place == 0, *entry[1:]) for batch in batches for place, entry in enumerate(batch.entries)],
        [
            (one.collection, one.key, one.expect, one.body, one.not_after_us, one.not_before_us)
            for batch in batches for one in batch.writes
        ],
        [(batch.run, batch.wake_at_us) for batch in batches if batch.wake_at_us is not None],
        [(batch.run, *batch.signature) for batch in batches if batch.signature is not None],
        [_drafted(tenant, stream, draft) for batch in batches for stream, draft in batch.shared],
    )  # fmt: skip


def _drafted(tenant: str, stream: str, draft: Draft) -> tuple[Any, ...]:
    """A draft for a shared stream, whose place in the chain the database finds."""
    kind, key, at_us, by, body, salt = draft
    digest = body_digest(salt, body)
    header = open_header(tenant, stream, digest, draft)
    return (stream, genesis(tenant, stream), kind, key, at_us, by, digest, *header, body, salt, ENTRY_FORMAT)


def locked(group: Iterable[Job]) -> dict[int, bool]:
    """What the transaction of a group locks, in order: alone (True) what it writes, shared what it only looks at."""
    locks: dict[int, bool] = {}
    for tenant, batch in group:
        locks[_place(tenant, "run", batch.run)] = True
        for stream, _ in batch.shared:
            locks[_place(tenant, "run", stream)] = True
        for write in batch.writes:
            place = _place(tenant, write.collection, write.key)
            locks[place] = write.body is not None or locks.get(place, False)
    return dict(sorted(locks.items()))


def _place(tenant: str, collection: str, key: str) -> int:
    """The number under which PostgreSQL locks a name. Two names with one number only wait for each other."""
    digest = hashlib.blake2b(f"{tenant}\0{collection}\0{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
