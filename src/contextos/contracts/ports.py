"""Everything the core may ask of the outside, and the seams between planes.

Ports are capability nouns with one to three methods; an implementation puts its technology first
(`SqliteStore`). Each has a public in-memory double and one shared suite (`tests/suites`). The core is
`async def` and awaits nothing but these, so a simulator or a replay drives it without an event loop.
What a plane is not handed it cannot do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

from contextos.contracts.evidence import EvidenceItem, RetrievalQuery
from contextos.contracts.identity import Approver, Principals
from contextos.contracts.journal import Batch, Document, Entry, Logged, SignedHead, Timeout, WitnessedHead, Write
from contextos.contracts.policy import CapabilityView, Point, PolicyDecision
from contextos.contracts.pressure import Aside
from contextos.contracts.scope import Action, Redeemed, StepCall
from contextos.contracts.slots import (
    Actor,
    AgentContextSlot,
    Artifact,
    ArtifactRef,
    Assertion,
    Candidate,
    CandidateQuery,
    ExtensionManifest,
    NewAssertion,
    NewRevision,
    Outranked,
    PickRefused,
    Pinned,
    Revision,
    Selected,
    SelectionAct,
    SelectionOrigin,
    SlotResolution,
)
from contextos.contracts.tool import AdapterDefinition, AdapterReply, CallContext, ToolResultEnvelope
from contextos.contracts.verdicts import Failure

Json = Any


class Clock(Protocol):
    """The only time there is. Unix time in microseconds."""

    def now_us(self) -> int: ...


class Entropy(Protocol):
    """The only chance there is."""

    def take(self, count: int) -> bytes: ...


class Directory(Protocol):
    """Who is who, from verified identity or the registry; nothing of it comes from a request's body."""

    async def resolve(self, tenant_id: str, user_id: str, agent_id: str) -> Principals | None:
        """The user and the agent as the tenant's directory knows them now; None if it does not know either."""
        ...

    async def approver(self, tenant_id: str, approver_id: str) -> Approver | None:
        """A person who may answer approvals, with roles and public keys as they are now."""
        ...


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


class Stores(Protocol):
    """The storage of a deployment. `due` is the only read across tenants."""

    def tenant(self, tenant_id: str) -> Store: ...

    def due(self, before_us: int, *, limit: int = 1000, skip: int = 0) -> AsyncIterator[tuple[str, str]]:
        """(tenant, run) of every run whose `wake_at_us` is not 0 and not after `before_us`, earliest first.

        At most `limit`, after the first `skip`.
        """
        ...

    async def erase(self, tenant_id: str, stream: str, seq: int) -> None:
        """Forget the body and salt of one entry; the chain still verifies. Raises `NotFound`."""
        ...


class Admission(Protocol):
    """How much is done at once in this process, and for whom: bounded in all and for each tenant. Stores nothing.

    A caller counts from the moment it asks until it has its answer. A run takes a turn while it is driven, and tenants
    take turns; it steps aside while an adapter is asked. Turns are waited for and never refused: who has begun goes on.
    """

    def caller(self, tenant_id: str) -> AbstractContextManager[None]:
        """One caller more, until it leaves. Raises `Overloaded` at once where there is no room."""
        ...

    def begin(self, tenant_id: str) -> None:
        """One new run more. Raises `Overloaded` where the tenant's quota is used up, with the time until the next."""
        ...

    def turn(self, tenant_id: str, run_id: str) -> AbstractAsyncContextManager[None]:
        """A place among the runs that are driven at once; waits for it."""
        ...

    def aside(self, tenant_id: str, run_id: str) -> AbstractAsyncContextManager[Aside]:
        """Leave the turn to others for as long as the run waits for the outside, and wait for it again.

        Who comes back goes before what of the tenant has not begun. `Aside` says afterwards how long that took.
        """
        ...

    async def make_way(self, tenant_id: str, run_id: str) -> None:
        """Return when this run may take its next step in its turn: others may go first, never for long."""
        ...


class Witness(Protocol):
    """Keeps heads where the owner of the store cannot rewrite them. What was put is never changed or taken back."""

    async def put(self, heads: Sequence[WitnessedHead]) -> None:
        """Durable when it returns. Raises `Unavailable`; nobody waits for a witness, it is asked again."""
        ...

    async def heads(self, tenant_id: str) -> Sequence[WitnessedHead]:
        """All that was put of a tenant, in order. Raises `Unavailable`, or `Integrity`: what is there is no witness."""
        ...


class Graph(Protocol):
    """One tenant's append-only graph. Snapshots are commit numbers; pinning one costs nothing."""

    async def head(self) -> int:
        """The newest commit number; 0 while the graph is empty."""
        ...

    async def neighbourhood(
        self, seeds: Sequence[str], *, at: int, hops: int, fan_out: int, limit: int
    ) -> Sequence[Mapping[str, Json]]:
        """Edges valid at commit `at` within `hops` of `seeds`: breadth first, then by id.

        At most `fan_out` per node and `limit` in all.
        """
        ...

    async def put(self, nodes: Sequence[Mapping[str, Json]], edges: Sequence[Mapping[str, Json]]) -> int:
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

    async def pinned(self, org_id: str, refs: Sequence[ArtifactRef]) -> Sequence[Pinned]:
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


class Adapter(Protocol):
    """Something of the outside behind the Tool Gateway.

    `call` raises `Unavailable` when it is certain that nothing happened, and `LostReply` when it is not. A business
    error is a reply.
    """

    def describe(self) -> AdapterDefinition: ...

    async def call(self, capability: str, args: Mapping[str, Json], context: CallContext) -> AdapterReply: ...

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        """What an earlier call with this key did; None if the outside knows of none."""
        ...


class Keys(Protocol):
    """Signing keys of this runtime, and the public keys it trusts. The algorithm comes from the key."""

    def sign(self, purpose: str, payload: bytes) -> tuple[str, bytes]:
        """(kid, signature) by the current key for `purpose` (`head`, `claim`, `export`, `pack`)."""
        ...

    def verify(self, purpose: str, kid: str, payload: bytes, signature: bytes) -> bool:
        """Whether a key that may sign for `purpose` made this signature; False for an unknown key."""
        ...

    def kids(self, purpose: str) -> Sequence[str]:
        """The ids of the keys trusted for `purpose`; the one that signs comes first."""
        ...


class Engine(Protocol):
    """Guarantees that somebody calls `advance` for a run that is due. Submitting is a hint, `due` is the truth."""

    def submit(self, tenant_id: str, run_id: str) -> None: ...

    def at(self, tenant_id: str, run_id: str, when_us: int) -> None: ...


Ask = Callable[[], Awaitable[Json]]


class Journal(Protocol):
    """Record, then use. Live, an answer is obtained and recorded before it is used; on a tape it is read from it."""

    run_id: str

    @property
    def now_us(self) -> int:
        """The time of the last entry: the only time a plane knows."""
        ...

    @property
    def head(self) -> str:
        """The hash of the last entry; it cannot be guessed before the entry is written."""
        ...

    @property
    def on_tape(self) -> bool:
        """Whether the next entry comes from the tape. A driver that dispatches must look before it leaps."""
        ...

    async def ask(self, kind: str, key: str, request: Json, call: Ask, *, by: str = "runtime") -> Json:
        """An answer from outside. `request` is what it answers; its digest is compared on a tape."""
        ...

    def note(self, kind: str, key: str, body: Json) -> None:
        """Something derived: live it is recorded, on a tape it is compared. Raises `ReplayMismatch`."""
        ...

    def stage(self, *writes: Write) -> None:
        """Compare-and-set writes that belong to the last entry and ride in its commit; on a tape they are done."""
        ...

    async def commit(self, *, wake_at_us: int | None = None) -> None:
        """The barrier: all noted and staged since the last one becomes durable together.

        With `wake_at_us` the driver lets the run go: nobody holds it until then (0: until somebody wakes it).
        Raises `Conflict`: another driver or a lost compare-and-set; drive the run again from its journal.
        """
        ...

    def hand_over(self) -> None:
        """End the drive that has just begun the run, so that an engine goes on; where a tape tells of it, go on.

        Raises `Parked`, due at once.
        """
        ...

    async def take_over(self) -> None:
        """Make it durable that this driver goes on, before it does anything that another may still be doing."""
        ...

    async def wait(
        self, kinds: Sequence[str], key: str, *, wake_at_us: int, on_timeout: Timeout | None
    ) -> tuple[str, Json]:
        """The entry that somebody else appends: (kind, answer).

        While there is none the loop rests here (`Rest`), or ends (`Parked`) where its driver keeps none.
        Past `wake_at_us` the loop itself appends `on_timeout`.
        """
        ...

    def log(self) -> Sequence[Logged]:
        """Every entry so far, in order, with its body."""
        ...


class Knowledge(Protocol):
    """What the Intelligence plane answers, at a pinned snapshot."""

    async def snapshot(self) -> str: ...

    async def retrieve(self, query: RetrievalQuery) -> Sequence[EvidenceItem]: ...


class SlotSteps(Protocol):
    """What a slot step of a template asks: pin what the slot takes, and say what stands behind the pins."""

    async def take(
        self, slot: AgentContextSlot, actor: Actor, project_id: str | None, origin: SelectionOrigin
    ) -> Selected | PickRefused:
        """What an autonomous slot takes; what it took before, in a drive that was lost, stands."""
        ...

    async def offer(self, slot: AgentContextSlot, actor: Actor, project_id: str | None) -> SlotResolution:
        """What the slot may take now. Nothing is written."""
        ...

    async def answer(
        self, slot: AgentContextSlot, actor: Actor, project_id: str | None, origin: SelectionOrigin, said: bytes
    ) -> Selected | PickRefused:
        """A person's pick for an interactive slot, against what the slot may take now."""
        ...

    async def contents(self, act: SelectionAct) -> Sequence[Pinned]: ...

    def rehearsed(self) -> SlotSteps:
        """The same steps, of which nothing is recorded."""
        ...

    async def withdrawn(
        self, slot: AgentContextSlot, actor: Actor, project_id: str | None, act: SelectionAct
    ) -> Sequence[str]:
        """The artifacts of an act that the actor may not take any more. A newer revision withdraws nothing."""
        ...

    async def recorded(self, slot: AgentContextSlot, origin: SelectionOrigin) -> SelectionAct | None:
        """The act of this origin for this slot, if there is one."""
        ...


class Memory(Protocol):
    """Promoted memory only; proposing never writes what recall can see."""

    async def recall(self, subject_ids: Sequence[str], *, limit: int) -> Sequence[EvidenceItem]: ...


class Estimator(Protocol):
    """Counts tokens; pinned by `name` (`bytes_div_4@1`)."""

    name: str

    def count(self, text: str) -> int: ...


class Policy(Protocol):
    """The pure function that answers every enforcement point. `evidence_paths` are what its rules read of evidence."""

    evidence_paths: frozenset[str]

    def decide(
        self,
        point: Point,
        facts: Mapping[str, Json],
        *,
        capability: CapabilityView | None,
        granted: bool,
        decision_id: str,
    ) -> PolicyDecision: ...


class Approvals(Protocol):
    """Asks a person once, and redeems the answer once."""

    async def obtain(self, action: Action) -> Redeemed | Failure:
        """Ask, wait, recheck everything that the approval was bound to. The caller's commit stages the redemption."""
        ...


class Tools(Protocol):
    """The Tool Gateway as the executor sees it."""

    async def call(self, call: StepCall) -> ToolResultEnvelope: ...
