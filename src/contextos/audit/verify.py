"""Verify a tenant's journal: the chain of each stream, the signed heads, the index, erasures, witnessed heads, and the
audit of slots.

Everything is read page by page, so the memory that a verification needs does not grow with the number of runs.
Source: docs/design/journal.md, "Streams of a tenant", "Signed heads", "Erasures".
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from contextos.audit.acts import verify_acts
from contextos.audit.checkpoint import CHECKPOINT_VERSION, Checkpoint, OpenRun, require_stored, utc
from contextos.audit.history import verify_stored_run
from contextos.audit.rows import verify_run_rows, verify_tenant_rows
from contextos.audit.selections import verify_selections
from contextos.audit.terms import refuse_later_terms, refuse_other_terms, verify_terms
from contextos.contracts.documents.runs import LEASES
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.evidence import EdgeRow
from contextos.contracts.ids import RUN
from contextos.contracts.journal import CONTROL, ENTRY_ERASED, INDEX, Entry, WitnessedHead, genesis
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Graph, Store
from contextos.deployment.witness import verify_witnessed
from contextos.errors import ChainBroken, Integrity, InvalidInput, Problem
from contextos.trust.approvals.cancel_requests import verify_cancels
from contextos.trust.journal.chain import verified_pages
from contextos.trust.pages import PAGE_ENTRIES, stream_pages
from contextos.trust.rows.edges import written_fact_fault
from contextos.trust.rows.memories import verify_memories


@dataclass(frozen=True, slots=True)
class VerifiedStream:
    """A journal stream that verified: its number of entries, the hash of the last one, and the entries that were
    erased.

    Each of the erased bodies is accounted for by a signed `entry.erased`. The first `unread` entries were not read.
    """

    stream: str
    entries: int
    head: str
    erased: tuple[int, ...]
    ended: bool
    unread: int = 0


class RunNumbers(NamedTuple):
    """The runs with the numbers `first` to `last` (None: to the end). The number of a run is the number of its first
    entry in the stream `index`.
    """

    first: int = 1
    last: int | None = None


class Verification:
    """One verification of a tenant's journal, or of the part of it that `numbers` and `since` leave.

    A range of run numbers that has an end covers these runs and their index entries, and nothing else. A range
    without an end also covers what belongs to no run: `control` and what its acts state, the witnessed heads, and
    whether the index names every run. So adjacent ranges from 1 on are a whole verification if the last has no end.

    With `since` the index entries and runs that this checkpoint covers are not read again, except runs that had not
    ended, runs that a later index entry names, and runs of which a body was erased since.

    Raises:
        InvalidInput: `since` does not begin where `numbers` do.
    """

    def __init__(
        self,
        store: Store,
        tenant_id: str,
        keys: Keys,
        *,
        numbers: RunNumbers | None = None,
        since: Checkpoint | None = None,
    ) -> None:
        self._store, self._tenant_id, self._keys, self._since = store, tenant_id, keys, since
        self._numbers = numbers or RunNumbers()
        if since and since.first != self._numbers.first:
            detail = f"the checkpoint begins at run {since.first}, and run {self._numbers.first} is asked for"
            remedy = f"name the range `{since.first}:`, or the checkpoints of the runs before as well"
            raise InvalidInput(Problem("", "other_range", detail, remedy))
        self._before, self._last, self._head = "", self._numbers.first - 1, ""
        self._control, self._control_head, self._compared, self._runs = 0, genesis(tenant_id, CONTROL), False, 0
        self._open_runs: dict[str, OpenRun] = {}
        self._closed_by: dict[str, int] = {}
        self._runs_again: set[str] = set()
        self._index_length = 0
        if since:
            self._before, self._last, self._head = since.before, since.last, since.head
            self._control, self._control_head = since.control, since.control_head
            self._compared, self._runs = since.compared, since.runs
            self._open_runs = {open_run.run: open_run for open_run in since.open}

    @property
    def verified_lines(self) -> int:
        """The number of the last index entry that is verified."""
        return self._last

    @property
    def runs_read_again(self) -> int:
        """How many of the runs that the checkpoint states were read again."""
        return len(self._runs_again)

    def checkpoint(self, begun_at_us: int, at_us: int, *, runtime: str) -> Checkpoint:
        """Return a checkpoint of all that is verified so far, with the times of this verification (Unix microseconds)
        and the version of the runtime.
        """
        return Checkpoint(
            v=CHECKPOINT_VERSION,
            runtime=runtime,
            tenant_id=self._tenant_id,
            begun_at_us=self._since.begun_at_us if self._since else begun_at_us,
            at_us=at_us,
            first=self._numbers.first,
            before=self._before,
            last=self._last,
            head=self._head,
            control=self._control,
            control_head=self._control_head,
            compared=self._compared,
            runs=self._runs,
            # A run that begins after the last verified index entry is not covered.
            open=tuple(open_run for _, open_run in sorted(self._open_runs.items()) if open_run.number <= self._last),
        )

    async def streams(self, witnessed: Sequence[WitnessedHead] = ()) -> AsyncIterator[VerifiedStream]:
        """Verify, and yield each run, then `index`, then `control` if it is covered.

        A head is the length of a stream and the hash of its last entry. Without `witnessed` heads (stored outside the
        database) it cannot be proved that nothing was cut from the end of `index` and `control`.

        Raises:
            ChainBroken: names the first entry that is missing, empty or differs. Bodies that are missing without a
                signed `entry.erased` are named before anything else of their run.
            InvalidInput: the index ends before the first number.
        """
        if self._since:
            await require_stored(self._store, self._since)
        unread, is_open_ended = self._last, self._numbers.last is None
        # Runs go on meanwhile. An index entry that is added from now on names its run to the next verification.
        self._index_length = await self._store.length(INDEX)
        async for run in self._verify_erased_runs():
            yield run
        async for run in self._verify_indexed_runs():
            yield run
        if is_open_ended and not self._compared:
            await self._check_index_complete()
        yield VerifiedStream(INDEX, self._last, self._head, (), ended=False, unread=unread)
        if is_open_ended:
            await verify_witnessed(self._store, self._tenant_id, witnessed, self._keys)
            await refuse_later_terms(self._store)
            pages = verified_pages(self._store, self._tenant_id, CONTROL)
            control = await verify_acts(self._store, self._tenant_id, pages, self._keys)
            await verify_memories(self._store, control.entries, self._keys)
            await verify_cancels(self._store, control.entries, self._keys)
            await verify_tenant_rows(self._store, self._tenant_id, control.entries, self._keys)
            yield VerifiedStream(CONTROL, control.entries, control.head, (), ended=False)

    async def _verify_erased_runs(self) -> AsyncIterator[VerifiedStream]:
        """Verify and yield the closed runs of which a body was erased since the checkpoint."""
        length = await self._store.length(CONTROL)
        if self._since:
            async for page in stream_pages(self._store, CONTROL, after=self._control, upto=length):
                erased_runs = {entry.key.rpartition("/")[0] for entry in page if entry.kind == ENTRY_ERASED}
                for run_id, index_entries in (await self._index_entries(erased_runs)).items():
                    if self._numbers.first <= index_entries[0].seq <= self._last and run_id not in self._open_runs:
                        yield await self._verify_run(run_id, index_entries)
        for last in await self._store.read(CONTROL, after=length - 1, limit=1) if length else ():
            self._control, self._control_head = last.seq, last.hash

    async def _check_index_complete(self) -> None:
        """Check that the index names every run that was driven, and every run in the audit of slots.

        Every run that was ever driven has a lease, from its first commit on, and an index entry.
        """
        async for driven_ids in LEASES.key_pages(self._store):
            if missing := set(driven_ids) - (await self._index_entries(driven_ids)).keys():
                detail = f"is missing: `{min(missing)}` was driven and the index does not name it"
                raise ChainBroken(INDEX, self._last + 1, detail)
        after = ""
        while page := await self._store.selected_runs(after=after, limit=PAGE_ENTRIES):
            audited_ids = [run_id for run_id in page if RUN.fits(run_id, sealed=True)]
            if missing := set(audited_ids) - (await self._index_entries(audited_ids)).keys():
                detail = "is missing: the audit of slots names the run, and the index does not"
                raise ChainBroken(min(missing), 1, detail)
            after = page[-1]
        self._compared = True

    async def _verify_indexed_runs(self) -> AsyncIterator[VerifiedStream]:
        """Verify the index and yield the runs that it names; then the other runs that were open at the checkpoint.

        A run is verified at its first index entry that the checkpoint does not cover.
        """
        covered_length, unvisited = self._last, set(self._open_runs)
        after = await self._index_entry(covered_length) if covered_length else None
        self._head = after.hash if after else genesis(self._tenant_id, INDEX)
        self._before = self._before or self._head
        async for page in verified_pages(self._store, self._tenant_id, INDEX, after=after, upto=self._numbers.last):
            start = page[0].seq
            run_entries = await self._index_entries_of_page(page)
            await refuse_other_terms(
                self._store, start, page[-1].seq, {entries[0].seq for entries in run_entries.values()}
            )
            for run_id, index_entries in run_entries.items():
                unvisited.discard(run_id)
                first_new = next(entry.seq for entry in index_entries if entry.seq > covered_length)
                if index_entries[0].seq >= self._numbers.first and first_new >= start:
                    self._refuse_unopened(index_entries, first_new)
                    yield await self._verify_run(run_id, index_entries)
                    self._runs += start <= index_entries[0].seq <= self._index_length
            for entry in page[: max(self._index_length - start + 1, 0)]:
                self._last, self._head = entry.seq, entry.hash
                self._drop_closed_run(entry.key)
        for run_ids in _pages(sorted(unvisited)):
            run_entries = await self._index_entries(run_ids)
            for run_id in run_ids:
                yield await self._verify_run(run_id, run_entries.get(run_id, ()))

    async def _verify_run(self, run_id: str, index_entries: Sequence[Entry]) -> VerifiedStream:
        open_run = self._open_runs.get(run_id)
        number = open_run.number if open_run else index_entries[0].seq
        if self._since and number <= self._since.last:
            self._runs_again.add(run_id)
        verified = await verify_audited_run(self._store, self._tenant_id, run_id, self._keys, kept=open_run)
        self._open_runs[run_id] = OpenRun(run=run_id, number=number, entries=verified.entries, head=verified.head)
        if verified.ended and _closed_length(index_entries) == verified.entries:
            self._closed_by[run_id] = index_entries[-1].seq
            self._drop_closed_run(run_id)
        return verified

    def _drop_closed_run(self, run_id: str) -> None:
        """Remove a run from the open runs of the checkpoint if it has ended and its last index entry is verified."""
        if self._closed_by.get(run_id, self._last + 1) <= self._last:
            del self._open_runs[run_id], self._closed_by[run_id]

    def _refuse_unopened(self, index_entries: Sequence[Entry], first_new: int) -> None:
        """Refuse a run that was not open at the checkpoint unless its first index entry since (`first_new`) opens it:
        `run.indexed` opens a new run, `run.reopened` an ended run. Earlier entries of the index could be gone.
        """
        index_entry = next(index_entry for index_entry in index_entries if index_entry.seq == first_new)
        opening_kind = "run.indexed" if index_entries[0].seq == first_new else "run.reopened"
        if self._since and index_entry.key not in self._open_runs and index_entry.kind != opening_kind:
            detail = f"and no line has said `{opening_kind}` since the run was verified by {utc(self._since.at_us)}"
            raise ChainBroken(INDEX, first_new, f"goes on with `{index_entry.key}`, {detail}")

    async def _index_entry(self, number: int) -> Entry:
        page = await self._store.read(INDEX, after=number - 1, limit=1)
        if page and page[0].seq != number:
            raise ChainBroken(INDEX, number, f"is missing; entry {page[0].seq} is in its place")
        if not page:
            detail = f"the index has no line {number}, behind which run {number + 1} would begin"
            raise InvalidInput(Problem("", "no_such_run", detail, "name a range that begins within it"))
        return page[0]

    async def _index_entries(self, run_ids: Collection[str]) -> Mapping[str, Sequence[Entry]]:
        """Return all entries of the index about these runs, by run id."""
        entries_by_run: dict[str, list[Entry]] = {}
        for entry in await self._store.lines(INDEX, *run_ids):
            entries_by_run.setdefault(entry.key, []).append(entry)
        return entries_by_run

    async def _index_entries_of_page(self, page: Sequence[Entry]) -> Mapping[str, Sequence[Entry]]:
        """Return all entries of the index about the runs that this page names, by run id, in the order of the page."""
        entries_by_run = await self._index_entries({entry.key for entry in page})
        known = {(entry.seq, entry.hash) for entries in entries_by_run.values() for entry in entries}
        for entry in page:
            if (entry.seq, entry.hash) not in known:
                raise ChainBroken(INDEX, entry.seq, f"is not among the lines about `{entry.key}`: restore the store")
        return {entry.key: entries_by_run[entry.key] for entry in page}


async def verify_tenant(
    store: Store, tenant_id: str, keys: Keys, witnessed: Sequence[WitnessedHead] = ()
) -> list[VerifiedStream]:
    """Verify a tenant's journal as a whole: the index, every run that it names, signed heads, erasures and `witnessed`
    heads; and that every promoted memory and cancel request is as an act left it.

    Returns the index, the runs by id, and `control`. The list grows with the number of runs; a `Verification` does not.

    Raises:
        ChainBroken: as `Verification.streams`.
    """
    streams = [stream async for stream in Verification(store, tenant_id, keys).streams(witnessed)]
    *runs, index, control = streams
    return [index, *sorted(runs, key=lambda run: run.stream), control]


async def verify_facts(graph: Graph, store: Store, keys: Keys) -> int:
    """Check that every edge of a tenant's graph is as the acts in `control` left it; return the number of edges.

    Raises:
        ChainBroken: an act is not sealed, or an edge is missing, surplus or altered; names it.
    """
    head_before, rows = await graph.head(), list[EdgeRow]()
    while page := await graph.rows(after=rows[-1].edge_id if rows else ""):
        rows += page
    acts, length = list[Entry](), 0
    async for entries in stream_pages(store, CONTROL):
        acts += (entry for entry in entries if entry.kind in ("graph.written", "graph.withdrawn"))
        length = entries[-1].seq
    if fault := written_fact_fault(acts, rows, (head_before, await graph.head()), keys):
        raise ChainBroken(CONTROL, length, f"is the last, and {fault}")
    return len(rows)


async def verify_audited_run(
    store: Store, tenant_id: str, run_id: str, keys: Keys, *, kept: OpenRun | None = None
) -> VerifiedStream:
    """Verify one run that the index or the audit of slots names, and that the audit holds exactly what this run
    selected. `kept` is the run as it was when it was verified before.

    Raises:
        ChainBroken: the run is missing or does not verify, differs from `kept`, or the audit differs from it.
    """
    stored = await store.read_run(run_id)
    entries, index_entries = stored.entries, stored.lines
    if kept and (len(entries) < kept.entries or entries[kept.entries - 1].hash != kept.head):
        raise ChainBroken(run_id, kept.entries, "is missing or differs: it was verified before, and the run was open")
    if not entries:
        source = "the index" if index_entries else "the audit of slots"
        raise ChainBroken(run_id, 1, f"is missing: {source} names the run")
    head, erased = await verify_stored_run(store, tenant_id, run_id, stored, keys)
    await verify_selections(store, run_id, entries)
    await verify_run_rows(store, tenant_id, run_id, entries, keys)
    if index_entries:
        await verify_terms(store, run_id, index_entries[0].seq, entries, keys)
    ended = entries[-1].kind == "run.ended"
    if ended and _closed_length(index_entries) < len(entries):
        raise ChainBroken(run_id, len(entries), "is the last: the run ended and the index does not say so")
    return VerifiedStream(run_id, len(entries), head, erased, ended)


async def chain_fault(store: Store, tenant_id: str, run_id: str, keys: Keys) -> Integrity | None:
    """Return the first thing about a run that does not verify, as `verify_audited_run` does; None if all does."""
    try:
        await verify_audited_run(store, tenant_id, run_id, keys)
    except Integrity as fault:
        return fault
    return None


def _closed_length(index_entries: Sequence[Entry]) -> int:
    """Return the length of a run that its last closing or reopening index entry states, or 0 without such an entry."""
    closings = [index_entry for index_entry in index_entries if index_entry.kind in ("run.closed", "run.reopened")]
    return int(read_body(closings[-1])["entries"]) if closings else 0


def _pages(run_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (run_ids[start : start + PAGE_ENTRIES] for start in range(0, len(run_ids), PAGE_ENTRIES))
