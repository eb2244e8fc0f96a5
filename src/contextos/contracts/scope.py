"""The values that describe one run and one call. Planes receive these values and no ports."""

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
    """A registered capability. `definition_digest` is the content address of its adapter's whole definition."""

    capability_id: str
    adapter: AdapterDefinition
    definition: CapabilityDefinition
    definition_digest: str


@dataclass(frozen=True, slots=True)
class Fact:
    """A named piece of evidence of a run. `observed_at_us` is Unix time in microseconds."""

    name: str
    evidence_ref: str
    subject: str
    value: Any
    digest: str
    observed_at_us: int


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """The time limit of a `long_running` run, counted from `run.received` and including the wait for people.

    `deadline_us` is Unix time in microseconds.
    """

    max_duration_ms: int
    deadline_us: int

    @property
    def limit(self) -> str:
        """Return the text that names this limit in a failure."""
        return f"`max_session_duration_ms` is {self.max_duration_ms}"


@dataclass(frozen=True, slots=True)
class RunScope:
    """Everything about a run that does not change after its admission.

    `request_fields` is the request in its wire form. `facts` are the values below each root name that policy knows from
    compile on. `scopes` is the intersection of the scopes of user, agent and request. `pins` maps each pinned reference
    to its content address. `unsafe` names the development stand-ins in force. `session` is the time limit of a
    `long_running` run; other modes have none.
    """

    request: InvokeRequest
    request_fields: Mapping[str, Any]
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
    semantics: int
    session: SessionWindow | None = None

    def session_over(self, at_us: int) -> bool:
        """Return whether the session is over at `at_us` (Unix time in microseconds); False without a session."""
        return self.session is not None and at_us >= self.session.deadline_us

    def within_session(self, at_us: int) -> int:
        """Return `at_us` or the deadline of the session, whichever is earlier."""
        return min(at_us, self.session.deadline_us) if self.session is not None else at_us


@dataclass(frozen=True, slots=True)
class StepCall:
    """One plan step with its final arguments. `provenance` is `literal` or `source:pointer` for each argument."""

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
    """The call that a person is asked to approve: its final arguments and its evidence."""

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
    """A valid approval. The commit that dispatches the call also consumes it."""

    approval_id: str
    gate_id: str
    approver: str
    evidence_snapshot_hash: str
    consume: Write
