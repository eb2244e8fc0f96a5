"""DecisionRecord and ReplayPacket: the durable receipt of a run, and the input of its replay.

Source: API Contracts, "DecisionRecord"; Runtime API Schemas, "Field invariants".
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
    """The party that decided."""

    type: Literal["AGENT", "USER", "SERVICE", "OPERATOR"]
    id: Name


class RecordIdentity(Model):
    """The agent and the principals of the decision. The identity claim itself is not kept, only its hash."""

    subject: Name
    claim_hash: Digest
    principal_chain: Chain


class PolicyDecisionRef(Model):
    """A policy decision, and the rules that matched in it."""

    policy_decision_id: PolicyDecisionId
    rule_ids: Seq[RuleId]


class ApprovalReceipt(Model):
    """An approval that was granted, denied or expired, with the digests of the action and evidence it covers."""

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
    """The planner and template of the decision, and its failures. The prose of a model is never a rationale."""

    strategy: Name
    alternatives_considered: Seq[Text] = ()
    failures: Seq[Failure] = ()


class BudgetUsage(Model):
    """The resources that the run used."""

    tokens: Count
    tool_calls: Count
    cost_usd_cents: Cents
    wall_clock_ms: Amount


class SessionCheckpoint(Model):
    """The state of a `long_running` run after a verdict of the Critic.

    `head` is the hash of the verdict's journal entry. `steps_done` are the ids of finished steps of the current plan.
    `deadline_us` is Unix time in microseconds.
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
    """The number of entries in a ledger so far, and the content address of the list of their hashes."""

    entries: Count
    head: Digest


class Lineage(Model):
    """The versions and pins from which the decision was made.

    `unsafe` names the development stand-ins in use. `asserted` names the unverified facts of the caller that policy
    accepted.
    """

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
    """The id of the replay packet, with the hashes that it must match."""

    replay_id: ReplayPacketId
    run_id: RunId
    compiled_context_hash: Digest | None = None
    tool_transcript_chain_hash: Digest | None = None


class AxisScore(Model):
    """The score of one evaluator on one axis, from 0 to 1 (best)."""

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
    """The typed outcome of a run. Revisions are appended and never edited.

    `record_hash` covers every field except itself.
    """

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
        """Refuse a decision without an outcome."""
        if self.status == "DECIDED" and self.outcome is None:
            yield "outcome", "status `DECIDED` does not say what was decided; give one of the allowed outcomes"


class ReplayExpectation(Model):
    """The end that a replay must reach."""

    status: RecordStatus
    decision_record_hash: Digest | None = None


class ReplayPacket(Model):
    """The portable input of a replay. The transcripts are in the journal; a replay never calls an adapter."""

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
