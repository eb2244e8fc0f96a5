"""What the writer says to PostgreSQL: the batches of a group as calls of `contextos.commit_batches`, one for a tenant.

All batches of a call hold or none does, so a call is a tuple of columns: one array for each field of what is written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

from contextos.contracts.journal import ENTRY_FORMAT, Batch, Draft, body_digest, genesis, open_header

Job = tuple[str, Batch]
"""A batch and its tenant."""

_ARGUMENTS: Final = 40
COMMIT: Final = f"SELECT contextos.commit_batches({', '.join(f'${number}' for number in range(1, _ARGUMENTS + 1))})"


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
    entries = [entry for batch in batches for entry in batch.entries]
    writes = [write for batch in batches for write in batch.writes]
    wakes = [(batch.run, batch.wake_at_us) for batch in batches if batch.wake_at_us is not None]
    signed = [(batch.run, *batch.signature) for batch in batches if batch.signature is not None]
    return (
        tenant, now_us, patience, list(locks), list(locks.values()),
        [place == 0 for batch in batches for place in range(len(batch.entries))], *_columns(entries, 13)[1:],
        [one.collection for one in writes], [one.key for one in writes], [one.expect for one in writes],
        [one.body for one in writes], [one.not_after_us for one in writes], [one.not_before_us for one in writes],
        *_columns(wakes, 2), *_columns(signed, 3),
        *_drafted(tenant, [shared for batch in batches for shared in batch.shared]),
    )  # fmt: skip


def _drafted(tenant: str, shared: Sequence[tuple[str, Draft]]) -> list[Sequence[Any]]:
    """The columns of drafts for shared streams, whose place in the chain the database finds."""
    digests = [body_digest(draft.salt, draft.body) for _, draft in shared]
    headers = [
        open_header(tenant, stream, digest, draft) for (stream, draft), digest in zip(shared, digests, strict=True)
    ]
    kind, key, at_us, by, body, salt = _columns([draft for _, draft in shared], 6)
    return [
        [stream for stream, _ in shared], [genesis(tenant, stream) for stream, _ in shared], kind, key, at_us, by,
        digests, [part for header in headers for part in header], body, salt, [ENTRY_FORMAT] * len(shared),
    ]  # fmt: skip


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


def _columns(rows: Sequence[Sequence[Any]], width: int) -> list[Sequence[Any]]:
    return list(zip(*rows, strict=True)) if rows else [()] * width
