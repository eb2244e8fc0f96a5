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
from contextos.errors import ChainBroken, InvalidInput, Problem
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
    line in the stream `index`.
    """

    first: int = 1
    last: int | None = None


class Verification:
    """One verification of a tenant's journal, or of the part of it that `numbers` and `since` leave.

    A range of run numbers that has an end covers these runs and their lines of the index, and nothing else. A range
    without an end also covers what belongs to no run: `control` and what its acts state, the witnessed heads, and
    whether the index names every run. So adjacent ranges from 1 on are a whole verification if the last has no end.

    With `since` the lines and runs that this checkpoint covers are not read again, except runs that had not ended, runs
    that a later line of the index names, and runs of which a body was erased since.

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
        self._store, self._tenant, self._keys, self._since = store, tenant_id, keys, since
        self._numbers = numbers or RunNumbers()
        if since and since.first != self._numbers.first:
            detail = f"the checkpoint begins at run {since.first}, and run {self._numbers.first} is asked for"
            remedy = f"name the range `{since.first}:`, or the checkpoints of the runs before as well"
            raise InvalidInput(Problem("", "other_range", detail, remedy))
        self._before, self._last, self._head = "", self._numbers.first - 1, ""
        self._control, self._control_head, self._compared, self._runs = 0, genesis(tenant_id, CONTROL), False, 0
        self._open: dict[str, OpenRun] = {}
        self._closing: dict[str, int] = {}
        self._again: set[str] = set()
        self._length = 0
        if since:
            self._before, self._last, self._head = since.before, since.last, since.head
            self._control, self._control_head = since.control, since.control_head
            self._compared, self._runs = since.compared, since.runs
            self._open = {one.run: one for one in since.open}

    @property
    def verified_lines(self) -> int:
        """The number of the last line of the index that is verified."""
        return self._last

    @property
    def runs_read_again(self) -> int:
        """How many of the runs that the checkpoint states were read again."""
        return len(self._again)

    def checkpoint(self, begun_at_us: int, at_us: int, *, runtime: str) -> Checkpoint:
        """Return a checkpoint of all that is verified so far, with the times of this verification (Unix microseconds)
        and the version of the runtime.
        """
        return Checkpoint(
            v=CHECKPOINT_VERSION,
            runtime=runtime,
            tenant_id=self._tenant,
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
            # A run that begins behind the last verified line is not covered.
            open=tuple(one for _, one in sorted(self._open.items()) if one.number <= self._last),
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
        unread, whole = self._last, self._numbers.last is None
        # Runs go on meanwhile. A line that is added from now on names its run to the next verification.
        self._length = await self._store.length(INDEX)
        async for run in self._erased_since():
            yield run
        async for run in self._indexed():
            yield run
        if whole and not self._compared:
            await self._compare_named()
        yield VerifiedStream(INDEX, self._last, self._head, (), ended=False, unread=unread)
        if whole:
            await verify_witnessed(self._store, self._tenant, witnessed, self._keys)
            await refuse_later_terms(self._store)
            pages = verified_pages(self._store, self._tenant, CONTROL)
            control = await verify_acts(self._store, self._tenant, pages, self._keys)
            await verify_memories(self._store, control.entries, self._keys)
            await verify_cancels(self._store, control.entries, self._keys)
            await verify_tenant_rows(self._store, self._tenant, control.entries, self._keys)
            yield VerifiedStream(CONTROL, control.entries, control.head, (), ended=False)

    async def _erased_since(self) -> AsyncIterator[VerifiedStream]:
        """Verify and yield the closed runs of which a body was erased since the checkpoint."""
        length = await self._store.length(CONTROL)
        if self._since:
            async for page in stream_pages(self._store, CONTROL, after=self._control, upto=length):
                erased = {line.key.rpartition("/")[0] for line in page if line.kind == ENTRY_ERASED}
                for run_id, lines in (await self._lines(erased)).items():
                    if self._numbers.first <= lines[0].seq <= self._last and run_id not in self._open:
                        yield await self._verified(run_id, lines)
        for last in await self._store.read(CONTROL, after=length - 1, limit=1) if length else ():
            self._control, self._control_head = last.seq, last.hash

    async def _compare_named(self) -> None:
        """Check that the index names every run that was driven, and every run in the audit of slots.

        Every run that was ever driven has a lease, from its first commit on, and an index line.
        """
        async for driven in LEASES.key_pages(self._store):
            if missing := set(driven) - (await self._lines(driven)).keys():
                named = f"is missing: `{min(missing)}` was driven and the index does not name it"
                raise ChainBroken(INDEX, self._last + 1, named)
        after = ""
        while audited := await self._store.selected_runs(after=after, limit=PAGE_ENTRIES):
            runs = [run for run in audited if RUN.fits(run, sealed=True)]
            if missing := set(runs) - (await self._lines(runs)).keys():
                named = "is missing: the audit of slots names the run, and the index does not"
                raise ChainBroken(min(missing), 1, named)
            after = audited[-1]
        self._compared = True

    async def _indexed(self) -> AsyncIterator[VerifiedStream]:
        """Verify the lines of the index and yield the runs that they name; then the other runs that were open before.

        A run is verified at its first line that the checkpoint does not cover.
        """
        covered, left = self._last, set(self._open)
        after = await self._line(covered) if covered else None
        self._head = after.hash if after else genesis(self._tenant, INDEX)
        self._before = self._before or self._head
        async for page in verified_pages(self._store, self._tenant, INDEX, after=after, upto=self._numbers.last):
            start = page[0].seq
            found = await self._lines_in(page)
            await refuse_other_terms(self._store, start, page[-1].seq, {lines[0].seq for lines in found.values()})
            for run_id, lines in found.items():
                left.discard(run_id)
                due = next(line.seq for line in lines if line.seq > covered)
                if lines[0].seq >= self._numbers.first and due >= start:
                    self._refuse_unopened(lines, due)
                    yield await self._verified(run_id, lines)
                    self._runs += start <= lines[0].seq <= self._length
            for line in page[: max(self._length - start + 1, 0)]:
                self._last, self._head = line.seq, line.hash
                self._settle(line.key)
        for run_ids in _pages_of(sorted(left)):
            found = await self._lines(run_ids)
            for run_id in run_ids:
                yield await self._verified(run_id, found.get(run_id, ()))

    async def _verified(self, run_id: str, lines: Sequence[Entry]) -> VerifiedStream:
        kept = self._open.get(run_id)
        number = kept.number if kept else lines[0].seq
        if self._since and number <= self._since.last:
            self._again.add(run_id)
        run = await verify_audited_run(self._store, self._tenant, run_id, self._keys, kept=kept)
        self._open[run_id] = OpenRun(run=run_id, number=number, entries=run.entries, head=run.head)
        if run.ended and _closed_at(lines) == run.entries:
            self._closing[run_id] = lines[-1].seq
            self._settle(run_id)
        return run

    def _settle(self, run_id: str) -> None:
        """Remove a run from the open runs of the checkpoint if it has ended and its last line is verified."""
        if self._closing.get(run_id, self._last + 1) <= self._last:
            del self._open[run_id], self._closing[run_id]

    def _refuse_unopened(self, lines: Sequence[Entry], due: int) -> None:
        """Refuse a run that was not open at the checkpoint if its first line after it does not open it: `run.indexed` a
        new run, `run.reopened` an ended one. Earlier lines are not read again, and some could be gone.
        """
        line = next(line for line in lines if line.seq == due)
        begun = "run.indexed" if lines[0].seq == due else "run.reopened"
        if self._since and line.key not in self._open and line.kind != begun:
            known = f"and no line has said `{begun}` since the run was verified by {utc(self._since.at_us)}"
            raise ChainBroken(INDEX, due, f"goes on with `{line.key}`, {known}")

    async def _line(self, number: int) -> Entry:
        found = await self._store.read(INDEX, after=number - 1, limit=1)
        if found and found[0].seq != number:
            raise ChainBroken(INDEX, number, f"is missing; entry {found[0].seq} is in its place")
        if not found:
            detail = f"the index has no line {number}, behind which run {number + 1} would begin"
            raise InvalidInput(Problem("", "no_such_run", detail, "name a range that begins within it"))
        return found[0]

    async def _lines(self, run_ids: Collection[str]) -> Mapping[str, Sequence[Entry]]:
        """Return all lines of the index about these runs, by run id."""
        lines: dict[str, list[Entry]] = {}
        for line in await self._store.lines(INDEX, *run_ids):
            lines.setdefault(line.key, []).append(line)
        return lines

    async def _lines_in(self, page: Sequence[Entry]) -> Mapping[str, Sequence[Entry]]:
        """Return all lines of the index about the runs that this page names, by run id, in the order of the page."""
        lines = await self._lines({line.key for line in page})
        known = {(line.seq, line.hash) for same in lines.values() for line in same}
        for line in page:
            if (line.seq, line.hash) not in known:
                raise ChainBroken(INDEX, line.seq, f"is not among the lines about `{line.key}`: restore the store")
        return {line.key: lines[line.key] for line in page}


async def verify_tenant(
    store: Store, tenant_id: str, keys: Keys, witnessed: Sequence[WitnessedHead] = ()
) -> list[VerifiedStream]:
    """Verify a tenant's journal as a whole: the index, every run that it names, signed heads, erasures and `witnessed`
    heads; and that every promoted memory and cancel request is as an act left it.

    Returns the index, the runs by id, and `control`. The list grows with the number of runs; a `Verification` does not.

    Raises:
        ChainBroken: as `Verification.streams`.
    """
    found = [one async for one in Verification(store, tenant_id, keys).streams(witnessed)]
    *runs, index, control = found
    return [index, *sorted(runs, key=lambda one: one.stream), control]


async def verify_facts(graph: Graph, store: Store, keys: Keys) -> int:
    """Check that every edge of a tenant's graph is as the acts in `control` left it; return the number of edges.

    Raises:
        ChainBroken: an act is not sealed, or an edge is missing, surplus or altered; names it.
    """
    before, rows = await graph.head(), list[EdgeRow]()
    while page := await graph.rows(after=rows[-1].edge_id if rows else ""):
        rows += page
    acts, length = list[Entry](), 0
    async for entries in stream_pages(store, CONTROL):
        acts += (entry for entry in entries if entry.kind in ("graph.written", "graph.withdrawn"))
        length = entries[-1].seq
    if fault := written_fact_fault(acts, rows, (before, await graph.head()), keys):
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
    entries, lines = stored.entries, stored.lines
    if kept and (len(entries) < kept.entries or entries[kept.entries - 1].hash != kept.head):
        raise ChainBroken(run_id, kept.entries, "is missing or differs: it was verified before, and the run was open")
    if not entries:
        by = "the index" if lines else "the audit of slots"
        raise ChainBroken(run_id, 1, f"is missing: {by} names the run")
    head, erased = await verify_stored_run(store, tenant_id, run_id, stored, keys)
    await verify_selections(store, run_id, entries)
    await verify_run_rows(store, tenant_id, run_id, entries, keys)
    if lines:
        await verify_terms(store, run_id, lines[0].seq, entries, keys)
    ended = entries[-1].kind == "run.ended"
    if ended and _closed_at(lines) < len(entries):
        raise ChainBroken(run_id, len(entries), "is the last: the run ended and the index does not say so")
    return VerifiedStream(run_id, len(entries), head, erased, ended)


def _closed_at(lines: Sequence[Entry]) -> int:
    """Return the number of entries in the last line that closed or reopened a run, or 0 if there is no such line."""
    said = [line for line in lines if line.kind in ("run.closed", "run.reopened")]
    return int(read_body(said[-1])["entries"]) if said else 0


def _pages_of(run_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (run_ids[start : start + PAGE_ENTRIES] for start in range(0, len(run_ids), PAGE_ENTRIES))
