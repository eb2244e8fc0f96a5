"""Verify a tenant's journal: the chain of each stream, the signed heads and the witnessed heads.

Source: docs/design/journal.md, "Streams of a tenant", "Signed heads".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from contextos.contracts.documents.runs import LEASES
from contextos.contracts.journal import CONTROL, INDEX, Entry, WitnessedHead
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Store
from contextos.errors import ChainBroken
from contextos.operations.witness import verify_witnessed
from contextos.trust.journal.chain import verify_chain
from contextos.trust.journal.signed_heads import read_signed, verify_heads


@dataclass(frozen=True, slots=True)
class VerifiedStream:
    """A verified stream: the number of entries, the hash of the last one, and the entries whose bodies were erased."""

    stream: str
    entries: int
    head: str
    erased: tuple[int, ...]
    ended: bool


async def verify_tenant(
    store: Store, tenant_id: str, keys: Keys, witnessed: Sequence[WitnessedHead] = ()
) -> list[VerifiedStream]:
    """Verify the index, every run that it names, every signed head and the `witnessed` heads.

    Without `witnessed` it cannot be proved that the index and `control` were not cut.

    Raises:
        ChainBroken: names the first entry that is missing or differs.
    """
    # Runs continue during an audit, so leases are read before the index that must name their runs. Every run that was
    # ever driven has a lease, from its first commit on, and an index line.
    leased = [run_id async for run_id in LEASES.keys(store)]
    index = await store.read(INDEX)
    verified = [_verified(tenant_id, INDEX, index)]
    runs = {orjson.loads(line.body or b"{}").get("run", line.key) for line in index}
    closed = {line.key: orjson.loads(line.body) for line in index if line.kind == "run.closed" and line.body}
    for run_id in leased:
        if run_id not in runs:
            missing = f"is missing: `{run_id}` was driven and the index does not name it"
            raise ChainBroken(INDEX, len(index) + 1, missing)
    for run_id in sorted(runs):
        entries, heads = await read_signed(store, run_id)
        verified.append(_verified(tenant_id, run_id, entries, closed.get(run_id)))
        verify_heads(tenant_id, run_id, entries, heads, keys)
    control = await store.read(CONTROL)
    verified.append(_verified(tenant_id, CONTROL, control))
    verify_witnessed(tenant_id, {INDEX: index, CONTROL: control}, witnessed, keys)
    return verified


def _verified(
    tenant_id: str, stream: str, entries: Sequence[Entry], closed: Mapping[str, Any] | None = None
) -> VerifiedStream:
    head = verify_chain(tenant_id, stream, entries)
    if closed and (closed["entries"], closed["head"]) != (len(entries), head):
        raise ChainBroken(
            stream, len(entries) + 1, f"is missing: the index closed the run at {closed['entries']} entries"
        )
    if stream.startswith("run_") and not entries:
        raise ChainBroken(stream, 1, "is missing: the index names the run")
    ended = bool(entries) and entries[-1].kind == "run.ended"
    return VerifiedStream(stream, len(entries), head, tuple(e.seq for e in entries if e.body is None), ended)
