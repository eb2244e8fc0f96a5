"""Ports to storage: the journal and documents of a tenant, its graph, and its artifacts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from contextos.contracts.encoding.codec import JsonValue
from contextos.contracts.envelopes.artifacts import (
    Artifact,
    ArtifactRef,
    Assertion,
    ExtensionManifest,
    NewAssertion,
    NewRevision,
    Outranked,
    PinnedContent,
    Revision,
    StoredLibrary,
)
from contextos.contracts.envelopes.evidence import EdgeRow, GraphCommit
from contextos.contracts.envelopes.slots import Candidate, CandidateQuery, SelectionAct
from contextos.contracts.journal import Batch, Document, Draft, Entry, Look, Sought, StoredRun, TermChange


class Store(Protocol):
    """One tenant's journal and documents. No store object exists without a tenant.

    `commit` is atomic, and durable when it returns. It raises `Conflict` if a sequence or version is not the expected
    one (nothing was written), and `Unavailable` if the outcome is unknown (read again).
    """

    async def commit(self, batch: Batch) -> None: ...

    async def read(self, stream: str, *, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        """Return the entries of a stream with `seq` greater than `after`, in order; empty for an unknown stream.

        Raises `ChainBroken` for a stream that was cut or altered so that its entries cannot be read, and `Integrity`
        for a format of storage that is not known.
        """
        ...

    async def read_run(self, run: str) -> StoredRun:
        """Return the stored data of a run at one moment, in one round trip; without entries for an unknown run.

        Raises as `read`.
        """
        ...

    async def length(self, stream: str) -> int:
        """Return the number of the last entry of a stream, or 0. No entry is read, so an altered one is not noticed."""
        ...

    async def lengths(self, runs: Sequence[str]) -> Mapping[str, int]:
        """Return the number of the last entry of each of these runs that has entries, in one round trip."""
        ...

    async def scan(
        self, collection: str, *, key: str | None = None, prefix: str = "", after: str = "", limit: int = 1000
    ) -> Sequence[Document]:
        """Return the document with `key`; without `key`, at most `limit` documents with a key that begins with `prefix`
        and is greater than `after`, in the order of their keys.
        """
        ...

    async def look(
        self,
        places: Sequence[tuple[str, str]],
        *,
        prefixes: Sequence[tuple[str, str, int]] = (),
        lines: Sequence[tuple[str, int]] = (),
    ) -> Look:
        """Return, in one round trip, what exists of these: the documents at `places` (collection, key); the first
        `limit` documents for each of `prefixes` (collection, prefix, limit); and, for each of `lines` (key, seq), the
        lines of `control` with this key and a greater `seq`.

        They are read one by one, so together they are not a snapshot of the store.
        """
        ...

    async def lines(self, stream: str, *keys: str) -> Sequence[Entry]:
        """Return the entries of the shared stream `stream` that have one of these keys, in order."""
        ...

    async def latest_us(self) -> int:
        """Return the latest time (Unix microseconds) of any entry in `index` and `control`; 0 if they are empty."""
        ...

    async def selected_runs(self, *, after: str = "", limit: int = 1000) -> Sequence[str]:
        """Return the ids greater than `after` of runs and standalone flows that have a selection in the audit of slots,
        in order and each once, at most `limit`.
        """
        ...

    async def selections(self, run: str) -> Sequence[SelectionAct]:
        """Return the selections of a run in the audit of slots, of every organisation. Raises `Integrity` if a row was
        altered.
        """
        ...

    async def waiting(self, *, after: int = 0, limit: int = 1000) -> Sequence[tuple[int, str]]:
        """Return (number, run) of the runs whose last commit marked them as waiting for a person, newest first.

        The number of a run is the sequence of its first line in the stream `index`; a run without one is not listed.
        Returns at most `limit` runs with a number below `after` (0: no bound), at a cost proportional to their number.
        The mark is only an index: fold a run to learn whether it still waits. Every waiting run has the mark.
        """
        ...

    async def found(self, sought: Sought, *, limit: int = 1000) -> Sequence[int]:
        """Return the numbers of the runs that fit `sought`, newest first, at most `limit`.

        The terms are only an index: read a run to learn whether it fits. A search costs as much as the first term has
        runs, so name the rarest term first.
        """
        ...

    async def terms(self, first: int, last: int) -> Sequence[tuple[int, int, int]]:
        """Return (number, term, begin in Unix microseconds) for each term of the runs `first` to `last`, in order."""
        ...


class Graph(Protocol):
    """One tenant's append-only graph. Snapshots are commit numbers; pinning one costs nothing."""

    async def head(self) -> int:
        """Return the newest commit number, or 0 for an empty graph."""
        ...

    async def neighbourhood(
        self, seeds: Sequence[str], *, at: int, hops: int, fan_out: int, limit: int
    ) -> Sequence[Mapping[str, JsonValue]]:
        """Return the edges valid at commit `at` within `hops` of `seeds`, breadth first, then by id.

        At most `fan_out` new edges per node and hop, and `limit` in all. Each edge is its statement with its
        `edge_id`, the `commit` that appended it and its `hop`.
        """
        ...

    async def step(
        self,
        sources: Sequence[str],
        predicate: str | None,
        *,
        at: int,
        limit: int,
        after: str = "",
        ended: bool = False,
    ) -> Sequence[Mapping[str, JsonValue]]:
        """Return at most `limit` edges from one of `sources` with this predicate (None: any) and an id greater than
        `after`, in the order of their ids. They are valid at commit `at`; with `ended`, they were withdrawn by `at`.
        """
        ...

    async def rows(self, *, after: str = "", limit: int = 1000) -> Sequence[EdgeRow]:
        """Return at most `limit` edges that were ever appended, in the order of their ids, greater than `after`."""
        ...

    async def plan(
        self, nodes: Sequence[Mapping[str, JsonValue]], edges: Sequence[Mapping[str, JsonValue]]
    ) -> GraphCommit:
        """Return what `put` would change now. Raises as `put`."""
        ...

    async def put(
        self,
        nodes: Sequence[Mapping[str, JsonValue]],
        edges: Sequence[Mapping[str, JsonValue]],
        *,
        acts: Sequence[Draft] = (),
        expect: int | None = None,
    ) -> int:
        """Append nodes and edges as one commit, and with it `acts` to the stream `control`; return the commit's number.

        An edge that no act names is not evidence. Raises `Conflict` if `expect` is not the newest commit (None: any),
        and `InvalidInput` for an edge without a reference to its evidence.
        """
        ...


class Artifacts(Protocol):
    """One tenant's artifacts (texts with a type, which context slots select), and the selections made so far.
    Only `insert_selection` writes.
    """

    async def candidates(self, query: CandidateQuery) -> Sequence[Candidate]:
        """Return each artifact that the query's actor can see and its slot accepts, at the latest revision.

        Ordered by scope from narrow to broad, then by artifact id, assertion id and revision id.
        """
        ...

    async def insert_selection(self, act: SelectionAct) -> bool:
        """Record a selection atomically; return False if it is recorded already.

        Raises `IncoherentSelection` if a ref is not (or no longer) a live artifact of this organisation with this
        revision and this eligible assertion; `RepeatedAct` if its id was used for another selection; `InvalidInput` if
        it is of a governed run whose journal does not hold it.
        """
        ...

    async def selections(self, org_id: str, run_id: str) -> Sequence[SelectionAct]:
        """Return the selections of a run, in the order in which they were recorded."""
        ...

    async def pinned_sizes(self, org_id: str, refs: Sequence[ArtifactRef]) -> Sequence[int]:
        """Return the bytes of UTF-8 of each pinned content, without reading it, in one query. Raises as `pinned`."""
        ...

    async def pinned(self, org_id: str, refs: Sequence[ArtifactRef]) -> Sequence[PinnedContent]:
        """Return the contents of pinned revisions, also of deleted artifacts. Raises `NotFound` for a revision that
        never existed.
        """
        ...


class Curation(Protocol):
    """One tenant's artifacts (texts with a type, which context slots select), for the people who maintain them.
    Contents are never rewritten; archiving and deleting are final.

    Every method raises `NotFound` for an artifact that does not exist or was deleted.
    """

    def under(self, record: Draft) -> Curation:
        """Return the same port for one change, which is stored together with this entry of the stream `control`, or not
        at all.
        """
        ...

    async def register(self, manifest: ExtensionManifest) -> None:
        """Install a type of artifact (an extension), or replace the list of types that it also counts as."""
        ...

    async def extensions(self) -> Sequence[ExtensionManifest]:
        """Return the installed extensions, ordered by name."""
        ...

    async def add(self, artifact: Artifact) -> None:
        """Add an artifact. Raises `InvalidInput` if its id is taken in this organisation or no user could see it."""
        ...

    async def revise(self, new: NewRevision) -> Revision:
        """Append new content to an artifact as its next revision, and return that revision."""
        ...

    async def classify(self, new: NewAssertion) -> Assertion | Outranked:
        """State that an artifact is of a certain type (extension). The active statement is archived, unless it has a
        higher rank.

        A statement by an automatic matcher never replaces an active one. Returns `Outranked` if the active statement
        stays. Raises `InvalidInput` if the type is not installed.
        """
        ...

    async def archive(self, org_id: str, artifact_id: str, extension: str, at_us: int) -> None:
        """Withdraw the active statement that an artifact is of the type `extension`. Raises `NotFound` if there is
        none.
        """
        ...

    async def tombstone(self, org_id: str, artifact_id: str, at_us: int) -> None:
        """Delete an artifact: no later slot can select it. Revisions that were pinned before stay readable."""
        ...


class ArtifactStore(Artifacts, Curation, Protocol):
    """One tenant's artifacts (texts with a type, which context slots select), for reading and for maintaining them."""

    async def stored(self) -> StoredLibrary:
        """Return every row. Raises `Integrity` if rows contradict each other, or an id does not follow from its row."""
        ...


class Stores(Protocol):
    """The storage of a deployment. `due` is the only read across tenants."""

    @property
    def name(self) -> str:
        """The identity of the database that workers share; empty for storage that only one machine can use."""
        ...

    def tenant(self, tenant_id: str) -> Store: ...

    def graph(self, tenant_id: str) -> Graph: ...

    def artifacts(self, tenant_id: str) -> ArtifactStore: ...

    def due(self, before_us: int, *, limit: int = 1000, skip: int = 0) -> AsyncIterator[tuple[str, str]]:
        """Yield (tenant, run) of the runs whose `wake_at_us` is not 0 and not after `before_us`, earliest first.

        Skips the first `skip` and yields at most `limit`.
        """
        ...

    async def require_room(self) -> None:
        """Raise `Unavailable` if this process sees that nothing more can be stored."""
        ...

    async def erase(self, tenant_id: str, run: str, seq: int, record: Draft, terms: TermChange | None = None) -> None:
        """Append `record` to `control`, delete the body and salt of one entry of a run, and change the terms of the
        run, in one transaction.

        The hash chain stays valid. If the entry is erased already, only the terms change. `record` has the kind
        `ENTRY_ERASED` and the key of this entry.

        Raises:
            NotFound: there is no such entry, or `run` is a shared stream, which is never erased.
            InvalidInput: `record` is about something else.
            InvalidSettings: the role of this process cannot erase.
        """
        ...

    def close(self) -> None:
        """Release files and connections. Do not use the storage afterwards; a second `close` does nothing."""
        ...
