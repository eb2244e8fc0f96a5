"""The ports between planes: what one plane may ask of another.

Ports are capability nouns with one to three methods; an implementation puts its technology first
(`SqliteStore`). Each has a public in-memory double and one shared suite (`tests/suites`). The core is
`async def` and awaits nothing but these, so a simulator or a replay drives it without an event loop.
A plane can do nothing for which it was not given a port.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from contextos.contracts.encoding.codec import JsonValue
from contextos.contracts.envelopes.artifacts import PinnedContent
from contextos.contracts.envelopes.evidence import EvidenceItem, RetrievalQuery
from contextos.contracts.envelopes.plan import PlanStep
from contextos.contracts.envelopes.policy import CapabilityView, Point, PolicyDecision
from contextos.contracts.envelopes.slots import (
    AgentContextSlot,
    PickRefused,
    Selected,
    SelectionAct,
    SelectionOrigin,
    SlotActor,
    SlotResolution,
)
from contextos.contracts.envelopes.tool import ToolResultEnvelope
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.journal import Logged, Timeout, Write
from contextos.contracts.scope import Action, Redeemed, StepCall

Ask = Callable[[], Awaitable[JsonValue]]


@dataclass(frozen=True, slots=True)
class RecordRequest:
    """One answer that a journal shall record: its kind and key, what it answers, and the call that obtains it."""

    kind: str
    key: str
    request: JsonValue
    call: Ask


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
        """Whether the next entry comes from the tape. Decides whether a dispatch was recorded by another driver."""
        ...

    async def record(self, kind: str, key: str, request: JsonValue, call: Ask, *, by: str = "runtime") -> JsonValue:
        """An answer from outside. `request` is what it answers; its digest is compared on a tape."""
        ...

    async def record_all(self, group: Sequence[RecordRequest]) -> list[JsonValue]:
        """Obtain several answers at the same time; return them in the order of `group`.

        Each answer is recorded when it arrives, so their order on record is that of arrival. On a tape an answer is
        found by its kind and key, in whatever order the group was recorded; an entry of anything else within the
        group is a `ReplayMismatch`. Where a tape ends within the group, only the missing answers are obtained.
        An error of one call is raised after the answers of the others are durable.
        """
        ...

    def derive(self, kind: str, key: str, body: JsonValue) -> None:
        """Record a derived value; on a tape, compare it with the recorded one. Raises `ReplayMismatch`."""
        ...

    def stage(self, *writes: Write) -> None:
        """Add compare-and-set writes to the commit of the last entry. On a tape they are in the store already."""
        ...

    async def commit(self, *, wake_at_us: int | None = None) -> None:
        """Make all entries and writes since the last commit durable, together.

        With `wake_at_us` (Unix µs) the driver releases the run until then; 0 means until an answer wakes it.
        Raises `Conflict` where another driver was faster or a compare-and-set failed; drive the run again.
        """
        ...

    def hand_over(self) -> None:
        """End a drive that has recorded something, so that an engine drives the run on. On a tape, go on.

        Raises `Parked`, due at once.
        """
        ...

    async def take_over(self) -> None:
        """Commit that this driver goes on, before it does anything that another driver could still be doing."""
        ...

    async def wait(
        self, kinds: Sequence[str], key: str, *, wake_at_us: int, on_timeout: Timeout | None
    ) -> tuple[str, JsonValue]:
        """Wait for an entry of one of `kinds` for `key` that another process appends. Returns (kind, answer).

        Meanwhile the loop is suspended (`Rest`), or ends (`Parked`) where its driver keeps no suspended loops. After
        `wake_at_us` (Unix µs) the loop appends `on_timeout`. An answer for another key is a `ReplayMismatch`.
        """
        ...

    def log(self) -> Sequence[Logged]:
        """Every entry so far, in order, with its body."""
        ...


class Knowledge(Protocol):
    """Read access to the Intelligence plane. Each answer is read at one pinned snapshot."""

    async def snapshot(self) -> str: ...

    async def retrieve(self, query: RetrievalQuery) -> Sequence[EvidenceItem]: ...


class SlotSteps(Protocol):
    """What a slot step of a template needs: pin the artifacts that fill the slot, and read the pinned contents."""

    async def take(
        self, slot: AgentContextSlot, actor: SlotActor, project_id: str | None, origin: SelectionOrigin
    ) -> Selected | PickRefused:
        """The selection of an autonomous slot. A selection from an earlier, lost drive of the run is returned again."""
        ...

    async def offer(self, slot: AgentContextSlot, actor: SlotActor, project_id: str | None) -> SlotResolution:
        """What the slot may take now. Nothing is written."""
        ...

    async def answer(
        self, slot: AgentContextSlot, actor: SlotActor, project_id: str | None, origin: SelectionOrigin, response: bytes
    ) -> Selected | PickRefused:
        """A person's pick for an interactive slot, against what the slot may take now."""
        ...

    async def contents(self, selection: SelectionAct) -> Sequence[PinnedContent]: ...

    def rehearsed(self) -> SlotSteps:
        """The same steps, of which nothing is recorded."""
        ...

    async def withdrawn(
        self, slot: AgentContextSlot, actor: SlotActor, project_id: str | None, selection: SelectionAct
    ) -> Sequence[str]:
        """The artifacts of an act that the actor may not take any more. A newer revision withdraws nothing."""
        ...

    async def recorded(self, slot: AgentContextSlot, origin: SelectionOrigin) -> SelectionAct | None:
        """Return the selection that is already recorded for this slot and origin, or None."""
        ...


class Memory(Protocol):
    """Promoted memory only; proposing never writes what recall can see."""

    async def recall(self, subject_ids: Sequence[str], *, limit: int) -> Sequence[EvidenceItem]: ...


class Policy(Protocol):
    """The pure function that answers every enforcement point. `evidence_paths` are what its rules read of evidence."""

    evidence_paths: frozenset[str]

    def decide(
        self,
        point: Point,
        facts: Mapping[str, JsonValue],
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

    async def call(self, call: StepCall) -> ToolResultEnvelope:
        """Take one call through every guard and the adapter. A refusal is a result, never an exception."""
        ...

    async def call_all(self, calls: Sequence[StepCall]) -> Sequence[ToolResultEnvelope]:
        """The same for several reads that do not depend on each other, sent at the same time.

        The results are in the order of `calls`, and end with the first one that a guard refused.
        """
        ...

    def sent_together(self, steps: Sequence[PlanStep]) -> int:
        """How many of these reads, from the first on, may be sent at the same time.

        They must fit what is left of the run's budget together, and no policy rule may read evidence that one of them
        produces.
        """
        ...
