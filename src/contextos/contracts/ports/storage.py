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
)
from contextos.contracts.envelopes.slots import Candidate, CandidateQuery, SelectionAct
from contextos.contracts.journal import Batch, Document, Entry, SignedHead


class Store(Protocol):
    """One tenant's journal and documents. No store object exists without a tenant.

    `commit` is atomic and durable when it returns, or raises `Conflict` (nothing happened: a sequence moved
    or a document was not as expected) or `Unavailable` (it is not known whether it happened: read again).
    """

    async def commit(self, batch: Batch) -> None: ...

    async def read(self, stream: str, *, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        """Entries of a stream in order, with `seq` greater than `after`; empty for a stream that is not there."""
        ...

    async def scan(
        self, collection: str, *, key: str | None = None, prefix: str = "", after: str = "", limit: int = 1000
    ) -> Sequence[Document]:
        """Documents of a collection: the one with `key`, or those that begin with `prefix`, by key, after `after`."""
        ...

    async def find(self, places: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], Document]:
        """Of a few documents, named by collection and key, those that are there; one way to the store and back.

        Each is as it was when it was read; all of them together are no moment of the store.
        """
        ...

    async def signed_heads(self, stream: str) -> Sequence[SignedHead]:
        """(seq, hash, kid, signature in hex) of every signed head of a stream, in order."""
        ...

    async def waiting(self, *, after: int = 0, limit: int = 1000) -> Sequence[tuple[int, str]]:
        """(number, run) of the runs that their last driver left waiting for a person, newest first.

        The number of a run is the sequence of its first line in the stream `index`; a run without one is not listed.
        At most `limit` runs with a number below `after` (0: all of them). The cost is that of the runs returned.
        This is an index and no proof: fold the run to see whether it still waits. No waiting run is missing.
        """
        ...


class Graph(Protocol):
    """One tenant's append-only graph. Snapshots are commit numbers; pinning one costs nothing."""

    async def head(self) -> int:
        """The newest commit number; 0 while the graph is empty."""
        ...

    async def neighbourhood(
        self, seeds: Sequence[str], *, at: int, hops: int, fan_out: int, limit: int
    ) -> Sequence[Mapping[str, JsonValue]]:
        """Edges valid at commit `at` within `hops` of `seeds`: breadth first, then by id.

        At most `fan_out` per node and `limit` in all.
        """
        ...

    async def put(self, nodes: Sequence[Mapping[str, JsonValue]], edges: Sequence[Mapping[str, JsonValue]]) -> int:
        """Append nodes and edges as one commit and return its number. Refuses an edge without an evidence ref."""
        ...


class Artifacts(Protocol):
    """One tenant's artifacts as a slot sees them, and the audit of what was picked. `insert_selection` alone writes."""

    async def candidates(self, query: CandidateQuery) -> Sequence[Candidate]:
        """Visible, live and eligible, one for each artifact and eligible assertion, at its latest revision.

        In the total order: scope from narrow to broad, then artifact id, assertion id, revision id.
        """
        ...

    async def insert_selection(self, act: SelectionAct) -> bool:
        """Record an act whole or not at all; False if it is recorded already.

        Raises `IncoherentSelection`: a ref is not (any more) a live artifact of this organisation with this revision
        and this eligible assertion; `RepeatedAct`: its id was used for another pick.
        """
        ...

    async def selections(self, org_id: str, run_id: str) -> Sequence[SelectionAct]:
        """Every act of a run, in the order in which they were recorded."""
        ...

    async def pinned(self, org_id: str, refs: Sequence[ArtifactRef]) -> Sequence[PinnedContent]:
        """What old pins stand for, whatever became of it since. Raises `NotFound` for a pin that never was."""
        ...


class Curation(Protocol):
    """One tenant's artifacts as those who look after them see them. Nothing is rewritten; ends are final.

    Every method raises `NotFound` for an artifact that is not there or is tombstoned.
    """

    async def register(self, manifest: ExtensionManifest) -> None:
        """Install an extension, or what it satisfies from now on."""
        ...

    async def extensions(self) -> Sequence[ExtensionManifest]:
        """The installed ones, by name."""
        ...

    async def add(self, artifact: Artifact) -> None:
        """Raises `InvalidInput`: the id is taken in this organisation, or nobody could see it."""
        ...

    async def revise(self, new: NewRevision) -> Revision:
        """Append content as the next revision."""
        ...

    async def classify(self, new: NewAssertion) -> Assertion | Outranked:
        """Assert an extension of an artifact. An active assertion of no higher rank is archived for it.

        A matcher gives way to whatever is active. Raises `InvalidInput`: the extension is not installed.
        """
        ...

    async def archive(self, org_id: str, artifact_id: str, extension: str, at_us: int) -> None:
        """End the active assertion of an extension. Raises `NotFound` where there is none."""
        ...

    async def tombstone(self, org_id: str, artifact_id: str, at_us: int) -> None:
        """Hide an artifact from every later resolution, and end its assertions; what is pinned stays readable."""
        ...


class ArtifactStore(Artifacts, Curation, Protocol):
    """One tenant's artifacts, both as slots read them and as their curators change them."""


class Stores(Protocol):
    """The storage of a deployment. `due` is the only read across tenants."""

    @property
    def name(self) -> str:
        """The identity of the database that workers share; empty for storage that only one machine can open."""
        ...

    def tenant(self, tenant_id: str) -> Store: ...

    def graph(self, tenant_id: str) -> Graph: ...

    def artifacts(self, tenant_id: str) -> ArtifactStore: ...

    def due(self, before_us: int, *, limit: int = 1000, skip: int = 0) -> AsyncIterator[tuple[str, str]]:
        """(tenant, run) of every run whose `wake_at_us` is not 0 and not after `before_us`, earliest first.

        At most `limit`, after the first `skip`.
        """
        ...

    async def erase(self, tenant_id: str, stream: str, seq: int) -> None:
        """Forget the body and salt of one entry; the chain still verifies. Raises `NotFound`."""
        ...

    def close(self) -> None:
        """Release files and connections. Do not use the storage afterwards; a second `close` does nothing."""
        ...
