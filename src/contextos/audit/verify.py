"""Verify a tenant's journal: the chain of each stream, the signed heads, the index, erasures, witnessed heads, and the
audit of slots.

Source: docs/design/journal.md, "Streams of a tenant", "Signed heads", "Erasures".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from contextos.audit.acts import verify_acts
from contextos.audit.selections import verify_selections
from contextos.contracts.documents.runs import LEASES
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.evidence import EdgeRow
from contextos.contracts.journal import CONTROL, INDEX, Entry, WitnessedHead
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Graph, Store
from contextos.errors import ChainBroken
from contextos.operations.witness import verify_witnessed
from contextos.trust.approvals.cancel_requests import verify_cancels
from contextos.trust.journal.chain import verify_chain
from contextos.trust.journal.entry_acts import require_acts
from contextos.trust.journal.graph_rows import written_fact_fault
from contextos.trust.journal.memory_rows import verify_memories
from contextos.trust.journal.signed_heads import read_signed, verify_heads, verify_indexed


@dataclass(frozen=True, slots=True)
class VerifiedStream:
    """A journal stream that verified: its number of entries, the hash of the last one, and the entries that were
    erased.

    Each of the erased bodies is accounted for by a signed `entry.erased`.
    """

    stream: str
    entries: int
    head: str
    erased: tuple[int, ...]
    ended: bool


async def verify_tenant(
    store: Store, tenant_id: str, keys: Keys, witnessed: Sequence[WitnessedHead] = ()
) -> list[VerifiedStream]:
    """Verify a tenant's journal: the index, every run that it names, signed heads, erasures and `witnessed` heads;
    and that every promoted memory and cancel request is as an act left it.

    A head is the length of a stream and the hash of its last entry. Without `witnessed` heads (stored outside the
    database) it cannot be proved that nothing was cut from the end of `index` and `control`.

    Raises:
        ChainBroken: names the first entry that is missing, empty or differs. Bodies that are missing without a signed
            `entry.erased` are named before anything else of their run.
    """
    # Runs continue during an audit, so leases are read before the index that must name their runs. Every run that was
    # ever driven has a lease, from its first commit on, and an index line.
    leased = [run_id async for run_id in LEASES.keys(store)]
    audited = set(await store.selected_runs())
    index = await store.read(INDEX)
    verified = [VerifiedStream(INDEX, len(index), verify_chain(tenant_id, INDEX, index), (), ended=False)]
    lines: dict[str, list[Entry]] = defaultdict(list)
    for line in index:
        lines[line.key].append(line)
    for run_id in leased:
        if run_id not in lines:
            missing = f"is missing: `{run_id}` was driven and the index does not name it"
            raise ChainBroken(INDEX, len(index) + 1, missing)
    verified += [
        await _verified_run(store, tenant_id, run_id, lines[run_id], keys, run_id in audited)
        for run_id in sorted(lines)
    ]
    for run_id in audited:
        if run_id not in lines:
            raise ChainBroken(run_id, 1, "is missing: the audit of slots names the run, and the index does not")
    ends: dict[str, int] = {}
    for line in [*index, *await store.read(INDEX, after=len(index))]:
        if line.kind in ("run.closed", "run.reopened"):
            ends[line.key] = read_body(line)["entries"]
    for run in verified[1:]:
        # A line of a later entry than was read: an operator reopened the run meanwhile.
        if run.ended and ends.get(run.stream, 0) < run.entries:
            raise ChainBroken(INDEX, len(index) + 1, f"is missing: `{run.stream}` ended and the index does not say so")
    control = await store.read(CONTROL)
    verified.append(VerifiedStream(CONTROL, len(control), verify_chain(tenant_id, CONTROL, control), (), ended=False))
    verify_witnessed(tenant_id, {INDEX: index, CONTROL: control}, witnessed, keys)
    await verify_acts(store, tenant_id, control, keys)
    await verify_memories(store, control, keys)
    await verify_cancels(store, control, keys)
    return verified


async def verify_facts(graph: Graph, store: Store, keys: Keys) -> int:
    """Check that every edge of a tenant's graph is as the acts in `control` left it; return the number of edges.

    Raises:
        ChainBroken: an act is not sealed, or an edge is missing, surplus or altered; names it.
    """
    before, rows = await graph.head(), list[EdgeRow]()
    while page := await graph.rows(after=rows[-1].edge_id if rows else ""):
        rows += page
    control = await store.read(CONTROL)
    if fault := written_fact_fault(control, rows, (before, await graph.head()), keys):
        raise ChainBroken(CONTROL, len(control), f"is the last, and {fault}")
    return len(rows)


async def verify_audited_run(store: Store, tenant_id: str, run_id: str, keys: Keys) -> VerifiedStream:
    """Verify one run that the audit of slots names, and that the audit holds exactly what this run selected.

    Raises:
        ChainBroken: the run is missing or does not verify, or the audit differs from it.
    """
    # The lines are read before the run, which only grows.
    lines = await store.lines(INDEX, run_id)
    return await _verified_run(store, tenant_id, run_id, lines, keys, selecting=True)


async def _verified_run(
    store: Store, tenant_id: str, run_id: str, lines: Sequence[Entry], keys: Keys, selecting: bool
) -> VerifiedStream:
    entries, heads = await read_signed(store, run_id)
    if not entries:
        by = "the index" if lines else "the audit of slots"
        raise ChainBroken(run_id, 1, f"is missing: {by} names the run")
    erased = await require_acts(store, entries, keys)
    head = verify_chain(tenant_id, run_id, entries)
    await verify_indexed(store, run_id, entries, lines)
    verify_heads(tenant_id, run_id, entries, heads, keys)
    if selecting or any(entry.kind == "slot.pinned" for entry in entries):
        await verify_selections(store, run_id, entries)
    return VerifiedStream(run_id, len(entries), head, erased, entries[-1].kind == "run.ended")
