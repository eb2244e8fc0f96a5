"""`MemoryStores`: the reference model of the `Stores` port, small enough to review by reading.

Its coroutines never suspend, so a simulator drives it without an event loop. It is not thread-safe.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from contextos.contracts.documents.runs import LEASES
from contextos.contracts.journal import (
    CONTROL,
    INDEX,
    SHARED_STREAMS,
    Batch,
    Document,
    Draft,
    Entry,
    Look,
    SignedHead,
    Sought,
    StoredRun,
    TermChange,
    Write,
    genesis,
    link,
)
from contextos.errors import Conflict, InvalidInput, Problem, Untimely
from contextos.store.shared.batch import nothing_signed, nothing_to_erase, refuse_erasure, refuse_misfit
from contextos.store.shared.clock import SystemClock
from contextos_sim.memory.artifacts import MemoryArtifacts
from contextos_sim.memory.graph import MemoryGraph

if TYPE_CHECKING:
    from contextos.contracts.envelopes.slots import SelectionAct
    from contextos.contracts.ports.outside import Clock
    from contextos.contracts.ports.storage import Graph, Store

__all__ = ["MemoryGraph", "MemoryStore", "MemoryStores"]


@dataclass(slots=True)
class _Tenant:
    """The stored data of one tenant. `terms` says by (term, number of the run) when the run began."""

    streams: dict[str, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    documents: dict[tuple[str, str], Document] = field(default_factory=dict)
    signed: dict[str, dict[tuple[int, str], SignedHead]] = field(default_factory=lambda: defaultdict(dict))
    wake: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    terms: dict[tuple[int, int], int] = field(default_factory=dict)

    def change(self, run: str, change: TermChange | None) -> None:
        """Change the terms of a run."""
        added, removed, began_us = change if change and run in self.numbers else TermChange()
        for term in removed:
            self.terms.pop((term, self.numbers[run]), None)
        for term in added:
            self.terms.setdefault((term, self.numbers[run]), began_us)


class MemoryStores:
    """All tenants' journals, documents, graphs and artifacts in memory. The deadlines of writes are compared with
    `clock`.
    """

    name = ""
    unsafe = ("unsafe_memory_store",)

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock if clock is not None else SystemClock()
        self._tenants: dict[str, _Tenant] = defaultdict(_Tenant)
        self._graphs: dict[str, Graph] = {}
        self._artifacts: dict[str, MemoryArtifacts] = {}

    def tenant(self, tenant_id: str) -> Store:
        return MemoryStore(tenant_id, self._tenants[tenant_id], self._clock, self.artifacts(tenant_id))

    def graph(self, tenant_id: str) -> Graph:
        """The graph of a tenant; the same object each time."""
        return self._graphs.setdefault(tenant_id, MemoryGraph(partial(self._append_acts, tenant_id)))

    def _append_acts(self, tenant_id: str, acts: Sequence[Draft]) -> None:
        control = self._tenants[tenant_id].streams[CONTROL]
        for act in acts:
            head = control[-1].hash if control else genesis(tenant_id, CONTROL)
            control.append(link(tenant_id, CONTROL, len(control) + 1, head, act))

    def artifacts(self, tenant_id: str) -> MemoryArtifacts:
        """The artifacts of a tenant; the same object each time."""
        streams = self._tenants[tenant_id].streams
        return self._artifacts.setdefault(tenant_id, MemoryArtifacts(tenant_id, streams))

    async def require_room(self) -> None:
        """Do nothing: memory has no limit of its own."""

    async def due(self, before_us: int, *, limit: int = 1000, skip: int = 0) -> AsyncIterator[tuple[str, str]]:
        waiting = [
            (wake_at_us, tenant, run)
            for tenant, stored in self._tenants.items()
            for run, wake_at_us in stored.wake.items()
            if wake_at_us != 0 and wake_at_us <= before_us
        ]
        for _, tenant, run in sorted(waiting)[max(skip, 0) :][: max(limit, 0)]:
            yield tenant, run

    async def erase(self, tenant_id: str, run: str, seq: int, record: Draft, terms: TermChange | None = None) -> None:
        refuse_erasure(run, seq, record)
        streams = self._tenants[tenant_id].streams
        entries = streams.get(run, [])
        if not 1 <= seq <= len(entries):
            raise nothing_to_erase(run, seq)
        if entries[seq - 1].body is not None:
            self._append_acts(tenant_id, (record,))
            entries[seq - 1] = entries[seq - 1]._replace(body=None, salt=None)
        self._tenants[tenant_id].change(run, terms)

    def close(self) -> None:
        """Do nothing: memory holds no files or connections."""


class MemoryStore:
    """One tenant's journal and documents (the `Store` port)."""

    def __init__(self, tenant_id: str, stored: _Tenant, clock: Clock, artifacts: MemoryArtifacts) -> None:
        if not tenant_id:
            raise InvalidInput(Problem("/tenant_id", "empty", "a store belongs to a tenant; name one"))
        self._tenant, self._stored, self._clock, self._artifacts = tenant_id, stored, clock, artifacts

    async def commit(self, batch: Batch) -> None:
        """Store all of the batch or nothing: check every change first, then apply all of them in one step."""
        refuse_misfit(self._tenant, batch)
        grown: dict[str, list[Entry]] = defaultdict(list)
        for entry in batch.entries:
            seq, head = self._head(batch.run, grown)
            if entry.seq != seq + 1 or entry.prev_hash != head:
                raise Conflict(batch.run)
            grown[batch.run].append(entry)
        to_sign = self._head(batch.run, grown)
        written = self._written(batch.writes)
        for stream, draft in batch.shared:
            seq, head = self._head(stream, grown)
            grown[stream].append(link(self._tenant, stream, seq + 1, head, draft))
        if batch.signature is not None and to_sign[0] == 0:
            raise nothing_signed(batch.run)
        is_named = batch.run in self._stored.numbers or any(line.key == batch.run for line in grown[INDEX])
        if batch.terms is not None and not is_named:
            raise Conflict(batch.run)

        for stream, entries in grown.items():
            self._stored.streams[stream].extend(entries)
        self._stored.documents.update(written)
        if batch.wake_at_us is not None:
            self._stored.wake[batch.run] = batch.wake_at_us
        if batch.waiting is not None:
            (self._stored.waiting.add if batch.waiting else self._stored.waiting.discard)(batch.run)
        for line in grown[INDEX]:
            if line.key == batch.run:
                self._stored.numbers.setdefault(batch.run, line.seq)
        self._stored.change(batch.run, batch.terms)
        if batch.signature is not None:
            kid, sig = batch.signature
            self._stored.signed[batch.run].setdefault((to_sign[0], kid), (*to_sign, kid, sig))

    async def read(self, stream: str, *, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        found = [entry for entry in self._stored.streams.get(stream, []) if entry.seq > after]
        return found if limit is None else found[: max(limit, 0)]

    async def read_run(self, run: str) -> StoredRun:
        entries = () if run in SHARED_STREAMS else tuple(await self.read(run))
        signed = self._stored.signed.get(run, {})
        heads, lines = [signed[seq_and_kid] for seq_and_kid in sorted(signed)], await self.lines(INDEX, run)
        return StoredRun(entries, heads, lines, self._stored.documents.get(LEASES.place(run)))

    async def length(self, stream: str) -> int:
        entries = self._stored.streams.get(stream)
        return entries[-1].seq if entries else 0

    async def lengths(self, runs: Sequence[str]) -> Mapping[str, int]:
        found = {run: await self.length(run) for run in runs if run not in SHARED_STREAMS}
        return {run: length for run, length in found.items() if length}

    async def scan(
        self, collection: str, *, key: str | None = None, prefix: str = "", after: str = "", limit: int = 1000
    ) -> Sequence[Document]:
        if key is not None:
            document = self._stored.documents.get((collection, key))
            return [document] if document is not None else []
        found = sorted(
            name
            for stored_in, name in self._stored.documents
            if stored_in == collection and name.startswith(prefix) and name > after
        )
        return [self._stored.documents[collection, name] for name in found[: max(limit, 0)]]

    async def look(
        self,
        places: Sequence[tuple[str, str]],
        *,
        prefixes: Sequence[tuple[str, str, int]] = (),
        lines: Sequence[tuple[str, int]] = (),
    ) -> Look:
        documents = {place: self._stored.documents[place] for place in places if place in self._stored.documents}
        for collection, prefix, limit in prefixes:
            found = await self.scan(collection, prefix=prefix, limit=limit)
            documents |= {(collection, one.key): one for one in found}
        control, after = self._stored.streams.get(CONTROL, []) if lines else [], dict(sorted(lines, reverse=True))
        return Look(documents, [one for one in control if one.key in after and one.seq > after[one.key]])

    async def lines(self, stream: str, *keys: str) -> Sequence[Entry]:
        shared = self._stored.streams.get(stream, []) if stream in SHARED_STREAMS else []
        return [entry for entry in shared if entry.key in keys]

    async def latest_us(self) -> int:
        shared = (self._stored.streams.get(stream, []) for stream in SHARED_STREAMS)
        return max((entry.at_us for entries in shared for entry in entries), default=0)

    async def selected_runs(self, *, after: str = "", limit: int = 1000) -> Sequence[str]:
        return [run for run in self._artifacts.selected_runs() if run > after][: max(limit, 0)]

    async def selections(self, run: str) -> Sequence[SelectionAct]:
        return self._artifacts.selections_of(run)

    async def waiting(self, *, after: int = 0, limit: int = 1000) -> Sequence[tuple[int, str]]:
        numbered = [(self._stored.numbers.get(run, 0), run) for run in self._stored.waiting]
        found = sorted(((number, run) for number, run in numbered if number and not 0 < after <= number), reverse=True)
        return found[: max(limit, 0)]

    async def found(self, sought: Sought, *, limit: int = 1000) -> Sequence[int]:
        terms, after, from_us, before_us = sought
        has = self._stored.terms
        found = [
            number
            for (term, number), began_us in has.items()
            if term == terms[0][0]
            and not 0 < after <= number
            and from_us <= began_us
            and (before_us is None or began_us < before_us)
            and all(any((one, number) in has for one in group) for group in terms)
        ]
        return sorted(found, reverse=True)[: max(limit, 0)]

    async def terms(self, first: int, last: int) -> Sequence[tuple[int, int, int]]:
        rows = [(number, term, began_us) for (term, number), began_us in self._stored.terms.items()]
        return sorted(row for row in rows if first <= row[0] <= last)

    def _head(self, stream: str, grown: dict[str, list[Entry]]) -> tuple[int, str]:
        entries = grown.get(stream) or self._stored.streams.get(stream)
        return (entries[-1].seq, entries[-1].hash) if entries else (0, genesis(self._tenant, stream))

    def _written(self, writes: Sequence[Write]) -> dict[tuple[str, str], Document]:
        """Return the documents after `writes`. A later write of the batch sees the earlier ones. Raises `Conflict`."""
        written: dict[tuple[str, str], Document] = {}
        now_us = self._clock.now_us()
        for write in writes:
            place = (write.collection, write.key)
            current = written.get(place) or self._stored.documents.get(place)
            late = write.not_after_us is not None and now_us > write.not_after_us
            early = write.not_before_us is not None and now_us < write.not_before_us
            if late or early:
                raise Untimely("/".join(place), now_us)
            if write.expect != (current.version if current is not None else 0):
                raise Conflict("/".join(place))
            if write.body is not None:
                written[place] = Document(*place, write.expect + 1, write.body)
        return written
