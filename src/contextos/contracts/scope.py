"""What the planes are handed of one run: values only, so that a plane can do no more than it was given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from contextos.contracts.envelopes.identity import IdentityClaim, Principal, Principals
from contextos.contracts.envelopes.pack import ApprovalGate, ContextPack
from contextos.contracts.envelopes.plan import DecisionSpec, PlanStep
from contextos.contracts.envelopes.policy import ApprovalMode, PolicyDecision
from contextos.contracts.envelopes.run import InvokeRequest, RunContext
from contextos.contracts.envelopes.tool import AdapterDefinition, CapabilityDefinition
from contextos.contracts.journal import Write


@dataclass(frozen=True, slots=True)
class Capability:
    """A registered capability: its definition, and the content address of its adapter's whole definition."""

    capability_id: str
    adapter: AdapterDefinition
    definition: CapabilityDefinition
    definition_digest: str


@dataclass(frozen=True, slots=True)
class Fact:
    """A named piece of evidence as the run may use it."""

    name: str
    evidence_ref: str
    subject: str
    value: Any
    digest: str
    observed_at_us: int


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """How long a `long_running` run may take from `run.received` on, waiting for people included."""

    max_duration_ms: int
    deadline_us: int

    @property
    def limit(self) -> str:
        """What is said where its time is over."""
        return f"`max_session_duration_ms` is {self.max_duration_ms}"


@dataclass(frozen=True, slots=True)
class RunScope:
    """Everything that is fixed for a run once it is admitted.

    `asked` is the request in its wire form. `facts` are the roots that policy knows from compile on. `scopes` is
    user ∩ agent ∩ requested. `pins` maps each pinned reference to its content address. `unsafe` names the development
    stand-ins in force. `session` bounds a `long_running` run; other modes have none.
    """

    request: InvokeRequest
    asked: Mapping[str, Any]
    run: RunContext
    principals: Principals
    chain: tuple[Principal, ...]
    scopes: frozenset[str]
    claim: IdentityClaim
    pack: ContextPack
    pack_ref: str
    pins: Mapping[str, str]
    publishers: tuple[str, ...]
    snapshot: str
    capabilities: Mapping[str, Capability]
    granted: frozenset[str]
    surfaced: frozenset[str]
    specs: Mapping[str, DecisionSpec]
    gates: Mapping[str, ApprovalGate]
    facts: Mapping[str, Any]
    unsafe: tuple[str, ...]
    session: SessionWindow | None = None

    def session_over(self, at_us: int) -> bool:
        """Whether the session of the run is over by then; a run without one has no such end."""
        return self.session is not None and at_us >= self.session.deadline_us

    def within_session(self, at_us: int) -> int:
        """That time, or the end of the session where it comes earlier."""
        return min(at_us, self.session.deadline_us) if self.session is not None else at_us


@dataclass(frozen=True, slots=True)
class StepCall:
    """One plan step, resolved: final arguments, and where each came from (`literal` or `source:pointer`)."""

    revision: int
    step: PlanStep
    args: Mapping[str, Any]
    provenance: Mapping[str, str]
    evidence: Mapping[str, Fact]
    required_evidence: tuple[str, ...]
    spec_key: str | None
    occurrence: int


@dataclass(frozen=True, slots=True)
class Action:
    """What a person is asked to agree to: one call, its final arguments and the evidence it rests on."""

    tool_call_id: str
    key: str
    capability: Capability
    args: Mapping[str, Any]
    evidence: tuple[Fact, ...]
    mode: ApprovalMode
    gate: ApprovalGate
    decision: PolicyDecision
    idempotency_key: str


@dataclass(frozen=True, slots=True)
class Redeemed:
    """An approval that counts: it is consumed in the same commit that dispatches the call."""

    approval_id: str
    gate_id: str
    approver: str
    evidence_snapshot_hash: str
    consume: Write
