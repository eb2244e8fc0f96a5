"""The ports by which planes (policy, action, decision and so on) call each other. Planes do not import each other.

The runtime passes these ports to each plane for one run. A plane can do nothing for which it was given no port.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from contextos.contracts.encoding.codec import JsonValue
from contextos.contracts.entries.account import RunAccount
from contextos.contracts.envelopes.artifacts import PinnedContent
from contextos.contracts.envelopes.evidence import EvidenceItem, RetrievalQuery
from contextos.contracts.envelopes.plan import PlanStep
from contextos.contracts.envelopes.policy import (
    BusinessHours,
    CapabilityView,
    HistoryFact,
    Point,
    PolicyDecision,
    RulesAbove,
)
from contextos.contracts.envelopes.slots import (
    AgentContextSlot,
    PickRefused,
    SelectionAct,
    SelectionOrigin,
    SlotActor,
    SlotResolution,
)
from contextos.contracts.envelopes.tool import ToolResultEnvelope
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.journal import Logged, Timeout, Write
from contextos.contracts.model import final_fields
from contextos.contracts.ports.calls import ToolCall
from contextos.contracts.scope import Action, Redeemed

Ask = Callable[[], Awaitable[JsonValue]]

ProvedCancels = Callable[[], Awaitable[Sequence[Mapping[str, str]]]]
"""Returns the cancel requests of one run that a sealed act proves, each as `by` (the person) and `reason`."""


@final_fields
class RecordRequest:
    """One of several answers to obtain and record: the entry's kind and key, the question, and the call that answers
    it.
    """

    kind: str
    key: str
    request: JsonValue
    call: Ask


class Journal(Protocol):
    """The journal of one run. Live, it obtains each answer from outside and records it before use. In a replay it
    returns the recorded answers and calls nothing.
    """

    run_id: str
    account: RunAccount

    @property
    def now_us(self) -> int:
        """Return the time of the last journal entry in Unix microseconds. A run reads no other clock."""
        ...

    @property
    def clock_us(self) -> int:
        """Return `now_us` by the clock of the process that wrote the last entry. It is less than `now_us` if that clock
        was behind the record. Times that other processes compare with their clocks, and deadlines for which the run
        waits, are computed from it.
        """
        ...

    @property
    def time_us(self) -> int:
        """Return the time now in Unix microseconds, for use inside an answer that is recorded.

        It is never before the last entry. If the clock went back, the time goes on from the latest time on record in
        the tenant, so that a deadline that has passed stays passed.
        """
        ...

    @property
    def head(self) -> str:
        """Return the hash of the last entry. It cannot be predicted before the entry is written."""
        ...

    @property
    def on_tape(self) -> bool:
        """Return whether the next entry was recorded by an earlier drive of the run, so that it is only
        replayed now.
        """
        ...

    async def record(self, kind: str, key: str, request: JsonValue, call: Ask, *, by: str = "runtime") -> JsonValue:
        """Obtain an answer from outside by awaiting `call`, record it, and return it. In a replay, return the
        recorded answer.

        `request` describes the question; a replay compares its digest. `by` is who answers.
        """
        ...

    async def record_found(
        self, kind: str, key: str, look: Callable[[], Awaitable[JsonValue | None]]
    ) -> JsonValue | None:
        """Look for something outside by awaiting `look`; record and return what it finds, or return None.

        Nothing is recorded if nothing was found. A replay finds exactly what was recorded at this place.
        """
        ...

    async def record_all(self, group: Sequence[RecordRequest], *, keeps: bool = True) -> list[JsonValue]:
        """Obtain several answers at the same time; return them in the order of `group`.

        Each answer is recorded when it arrives. A replay finds an answer by its kind and key, in any order; an entry of
        another kind or key among them is a `ReplayMismatch`. Answers that were not recorded yet are obtained. The error
        of one call is raised after the other answers are durable; without `keeps`, these are not kept and are obtained
        anew.
        """
        ...

    def derive(self, kind: str, key: str, body: JsonValue) -> None:
        """Record a value that the run computed. In a replay, compare it with the recorded one; raises
        `ReplayMismatch`.
        """
        ...

    def stage(self, *writes: Write) -> None:
        """Add compare-and-set writes to the next commit, beside the last entry. In a replay they were written
        earlier.
        """
        ...

    def defer_commit(self) -> None:
        """Let the pending entries become durable with the next commit, which precedes any question to the outside."""
        ...

    async def commit(self, *, wake_at_us: int | None = None) -> None:
        """Make all entries and writes since the last commit durable, atomically.

        With `wake_at_us` (Unix microseconds) the driver releases the run until then; 0: until an answer wakes it.
        Raises `Conflict` if another driver was faster or a compare-and-set failed; drive the run again.
        """
        ...

    def hand_over(self) -> None:
        """Stop driving here, so that the engine continues the run. In a replay, do nothing.

        Raises `Parked`, due at once.
        """
        ...

    async def take_over(self) -> None:
        """Record durably that this driver continues the run, before it repeats anything that another driver could
        still be doing.
        """
        ...

    async def wait(
        self, kinds: Sequence[str], key: str, *, wake_at_us: int, on_timeout: Timeout | None
    ) -> tuple[str, JsonValue]:
        """Wait until another process appends an entry of one of `kinds` for `key`. Returns (kind, answer).

        Meanwhile the run is suspended, or the drive ends with `Parked` if its driver keeps no suspended runs. After
        `wake_at_us` (Unix microseconds) `on_timeout` is appended. An answer for another key is a `ReplayMismatch`.
        """
        ...

    async def receive(
        self, kinds: Sequence[str], *, clean: Callable[[JsonValue], JsonValue], wake_at_us: int, on_timeout: Timeout
    ) -> Logged | None:
        """Wait for the next message of the agent of a session, and record the result of `clean` for it.

        Returns the entry, which is of one of `kinds`; None if the run was woken and the agent said nothing. In all else
        it behaves as `wait`.
        """
        ...

    def log(self) -> Sequence[Logged]:
        """Return every entry so far, in order, with its parsed body."""
        ...


class Knowledge(Protocol):
    """Read access to the tenant's knowledge graph. All answers of a run come from one pinned snapshot."""

    async def snapshot(self) -> str: ...

    async def retrieve(self, query: RetrievalQuery) -> Sequence[EvidenceItem]: ...


class SlotSteps(Protocol):
    """What a run needs to fill a context slot: select artifacts, pin them, and read the pinned contents."""

    async def offer(self, slot: AgentContextSlot, actor: SlotActor, project_id: str | None) -> SlotResolution:
        """Return the artifacts that can be selected for the slot now. Writes nothing."""
        ...

    async def choose(
        self,
        slot: AgentContextSlot,
        actor: SlotActor,
        project_id: str | None,
        origin: SelectionOrigin,
        answer: bytes | None,
    ) -> SelectionAct | PickRefused:
        """Return the selection for a slot: automatic if `answer` is None, otherwise by a person's answer (JSON).
        Writes nothing.
        """
        ...

    async def record(self, selection: SelectionAct) -> PickRefused | None:
        """Write a selection that is in the run's journal to the audit; return why it is refused, or None.

        Writing it again changes nothing. Raises `InvalidInput` if the journal does not hold it, and `RepeatedAct` if
        the audit has another selection under its id.
        """
        ...

    async def contents(self, selection: SelectionAct) -> Sequence[PinnedContent]: ...

    def rehearsed(self) -> SlotSteps:
        """Return the same steps in a mode that records nothing."""
        ...

    async def withdrawn(
        self, slot: AgentContextSlot, actor: SlotActor, project_id: str | None, selection: SelectionAct
    ) -> Sequence[str]:
        """Return the ids of selected artifacts that the actor is no longer allowed to use. A newer revision is no
        reason.
        """
        ...


class Memory(Protocol):
    """Reads accepted memories and proposes new ones. A proposal is not visible to `recall` before a person accepts
    it.
    """

    async def recall(self, subject_ids: Sequence[str], *, limit: int) -> Sequence[EvidenceItem]: ...


class Policy(Protocol):
    """Decides what is allowed, as a pure function of the facts. `history` has the history facts by name, `above` the
    rules above the pack, and `prohibiting` the tools that each rule prohibits, by the rule's id. `reads_origins` says
    whether a rule reads where an argument was found. `homes` has the bundle of each rule of any level, by its id.
    """

    reads_origins: bool
    homes: Mapping[str, str]
    history: Mapping[str, HistoryFact]
    above: RulesAbove
    prohibiting: Mapping[str, Sequence[str]]

    def asked_at(self, point: Point) -> bool:
        """Return whether at least one rule is about this point alone."""
        ...

    def reads_evidence(self, name: str) -> bool:
        """Return whether a rule reads this evidence, or a part of it."""
        ...

    def hours_of(self, capability_id: str) -> dict[str, BusinessHours]:
        """Return the business hours through which the rules about a tool read the clock, by name."""
        ...

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
    """Asks a person to approve one call. Each approval can be used once."""

    async def obtain(self, action: Action) -> Redeemed | Failure:
        """Ask a person, wait for the answer, and check again everything on which the answer depends. Returns the
        approval or the failure.

        The caller's next commit marks the approval as used.
        """
        ...


class Tools(Protocol):
    """The tool gateway as the executor (which runs a plan's steps) sees it."""

    async def call(self, call: ToolCall) -> ToolResultEnvelope:
        """Check one call, send it to its adapter and return the result. A refusal is a result, never an exception."""
        ...

    async def call_all(self, calls: Sequence[ToolCall]) -> Sequence[ToolResultEnvelope]:
        """Check several independent reads and send them at the same time.

        The results are in the order of `calls` and end with the first call that was refused.
        """
        ...

    def overrun(self) -> str | None:
        """Return the limit on cost or wall clock that the run is above after the calls so far, or None."""
        ...

    def sent_together(self, steps: Sequence[PlanStep]) -> int:
        """Return how many of these reads, counted from the first, can be sent at the same time.

        Together they must fit the rest of the run's budget, and no policy rule may read evidence that one of them
        produces.
        """
        ...
