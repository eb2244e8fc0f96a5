"""DecisionRecord and ReplayPacket: the durable, replayable receipts.

Source: API Contracts, "DecisionRecord"; Runtime API Schemas, "Field invariants"; contextos-facts.md, 11 and 17.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from contextos.contracts.envelopes.compiled import RuntimeControls
from contextos.contracts.envelopes.identity import Chain
from contextos.contracts.envelopes.policy import ApprovalMode
from contextos.contracts.envelopes.verdicts import End, Failure, RecordStatus, ScoreVerdict, VerifyVerdict
from contextos.contracts.ids import (
    Ceid,
    Digest,
    GateId,
    PlanId,
    PolicyDecisionId,
    RecordId,
    ReplayPacketId,
    RoutingId,
    RuleId,
    RunId,
    SessionId,
    Timestamp,
    TraceId,
)
from contextos.contracts.model import Amount, Cents, Count, Map, Model, Name, OpenObject, Positive, Seq, Share, Text
from contextos.contracts.refs import EvidenceRef


class RecordActor(Model):
    """Who decided."""

    type: Literal["AGENT", "USER", "SERVICE", "OPERATOR"]
    id: Name


class RecordIdentity(Model):
    """The dual identity of the decision; the claim is present as its hash only."""

    subject: Name
    claim_hash: Digest
    principal_chain: Chain


class PolicyDecisionRef(Model):
    """A policy decision and the rules that matched in it."""

    policy_decision_id: PolicyDecisionId
    rule_ids: Seq[RuleId]


class ApprovalReceipt(Model):
    """An approval that was given or refused, and what it was bound to."""

    gate_id: GateId
    approver: Name
    approval_mode_effective: ApprovalMode
    evidence_snapshot_hash: Digest
    decided_at: Timestamp | None = None
    verdict: Literal["approved", "denied", "expired"] | None = None
    reason: Text | None = None
    binding_digest: Digest | None = None
    assertion: Literal["webauthn", "jws", "unsafe_local"] | None = None


class Rationale(Model):
    """Planner and template; a model's prose is never a reason."""

    strategy: Name
    alternatives_considered: Seq[Text] = ()
    failures: Seq[Failure] = ()


class BudgetUsage(Model):
    """What the run used."""

    tokens: Count
    tool_calls: Count
    cost_usd_cents: Cents
    wall_clock_ms: Amount


class SessionCheckpoint(Model):
    """How far a `long_running` run was after a verdict of the Critic: what it is pinned to, did and used.

    `head` is the hash of the verdict's entry, `steps_done` those of the present plan, `deadline_us` Unix time.
    """

    checkpoint: Positive
    session_id: SessionId | None
    run_id: RunId
    after: Literal["plan.verified", "run.scored"]
    verdict: VerifyVerdict | ScoreVerdict
    head: Digest
    plan_id: PlanId | None
    revision: Count | None
    pack_ref: Name
    snapshot: Name
    steps_done: Seq[Name]
    budget_used: BudgetUsage
    deadline_us: Count


class LedgerHead(Model):
    """How many entries a ledger holds so far, and the content address of the list of their hashes."""

    entries: Count
    head: Digest


class Lineage(Model):
    """What the decision was made from. `unsafe` marks development stand-ins; `asserted` facts that policy accepted."""

    pack_version: Name
    snapshot_version: Name
    runtime_version: Name | None = None
    semantics: Count | None = None
    pins: Map[Digest] | None = None
    ledgers: Map[LedgerHead] | None = None
    unsafe: Seq[Name] = ()
    asserted: Seq[Name] = ()
    routing_decisions: Seq[RoutingId] = ()


class ReplayHandle(Model):
    """Where the replay packet is; not a substitute for the trace or the transcripts."""

    replay_id: ReplayPacketId
    run_id: RunId
    compiled_context_hash: Digest | None = None
    tool_transcript_chain_hash: Digest | None = None


class AxisScore(Model):
    """One evaluator's verdict on one axis; 1 is best."""

    evaluator: Name
    score: Share
    threshold: Share
    status: Literal["pass", "fail"]
    findings: Seq[Text] = ()


class Scorecard(Model):
    """The five axes and the Critic's verdict."""

    policy: AxisScore
    utility: AxisScore
    latency: AxisScore
    safety: AxisScore
    economics: AxisScore
    verdict: ScoreVerdict


class DecisionRecord(Model):
    """The typed outcome of a run. Appended as revisions, never edited; `record_hash` covers all but itself."""

    record_id: RecordId
    decision_key: Name
    decision_version: Name
    timestamp: Timestamp | None = None
    status: RecordStatus
    outcome: Name | None = None
    end: End | None = None
    actor: RecordActor
    agent_identity: RecordIdentity | None = None
    intent_ref: Name | None = None
    subject_ids: Seq[Ceid] = ()
    inputs_refs: Map[Name] = {}
    outputs: OpenObject
    evidence_refs: Seq[EvidenceRef]
    policy_decisions: Seq[PolicyDecisionRef]
    approvals: Seq[ApprovalReceipt]
    controls_active: RuntimeControls
    confidence: Share | None = None
    rationale: Rationale | None = None
    budget_usage: BudgetUsage
    scorecard: Scorecard | None = None
    lineage: Lineage | None = None
    trace_id: TraceId
    revision: Count | None = None
    replay: ReplayHandle | None = None
    record_hash: Digest | None = None

    required_when_sealed: ClassVar[tuple[str, ...]] = (
        "timestamp",
        "intent_ref",
        "rationale",
        "lineage",
        "revision",
        "replay",
        "record_hash",
    )

    def sealing_faults(self) -> Iterator[tuple[str, str]]:
        """A decision without its outcome."""
        if self.status == "DECIDED" and self.outcome is None:
            yield "outcome", "status `DECIDED` does not say what was decided; give one of the allowed outcomes"


class ReplayExpectation(Model):
    """What a replay must end in."""

    status: RecordStatus
    decision_record_hash: Digest | None = None


class ReplayPacket(Model):
    """Portable replay input. Its transcripts are the journal's; replay never acts."""

    replay_packet_id: ReplayPacketId
    trace_id: TraceId
    session_id: SessionId | None = None
    source_kind: Literal[
        "decision_record", "quality_replay_case", "environment_episode", "operator_correction", "golden_case"
    ]
    source_ref: Name
    run_context_ref: Name | None = None
    context_pack_ref: Name
    knowledge_snapshot_ref: Name | None = None
    compiled_context_hash: Digest
    tool_transcript_chain_hash: Digest | None = None
    side_effect_policy: Literal["transcript_only", "sandbox", "live_disallowed"]
    expected: ReplayExpectation


class DecisionOutput(Model):
    """The short form of a decision (API Contracts, "Decision output")."""

    decision_id: Name
    outcome: Name
    evidence_refs: Seq[EvidenceRef]
