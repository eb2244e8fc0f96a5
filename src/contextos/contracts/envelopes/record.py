"""DecisionRecord and ReplayPacket: the durable receipt of a run, and the input of its replay.

Source: API Contracts, "DecisionRecord"; Runtime API Schemas, "Field invariants".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final, Literal

from contextos.contracts.envelopes.compiled import RuntimeControls
from contextos.contracts.envelopes.identity import Chain
from contextos.contracts.envelopes.policy import ApprovalMode
from contextos.contracts.envelopes.verdicts import End, Failure, RecordStatus, ScoreVerdict, VerifyVerdict
from contextos.contracts.ids import (
    CapabilityId,
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
    ToolCallId,
    TraceId,
)
from contextos.contracts.model import Amount, Cents, Count, Map, Model, Name, OpenObject, Positive, Seq, Share, Text
from contextos.contracts.refs import EvidenceRef


class RecordActor(Model):
    """Who decided: an agent, user, service or operator, by id."""

    type: Literal["AGENT", "USER", "SERVICE", "OPERATOR"]
    id: Name


class RecordIdentity(Model):
    """The agent and the principals (user and agent) of a decision, and the hash of the run's identity token."""

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
    assertion: Literal["webauthn", "jws", "oidc", "unsafe_local"] | None = None


class RecordedEffect(Model):
    """An effect of a run on an external system. `unknown`: it is not known whether it happened.

    `made_by` is the run that did it: an operation that an earlier run did is not done again.
    """

    step_id: Name
    capability_id: CapabilityId
    tool_call_id: ToolCallId
    state: Literal["happened", "unknown"]
    made_by: RunId
    mutations: Seq[Name] = ()


class Rationale(Model):
    """How a decision came about: its planner, its task template and its failures. It never quotes a language model."""

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
    """The progress of a `long_running` run after a verdict about its plan or its results.

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
    """The number of entries in one of a run's ledgers, and a digest of their hashes."""

    entries: Count
    head: Digest


UNSAFE_OBSERVED: Final = "unsafe_observed"
"""The name in the lineage of a run that its pack observed: nothing of the pack was enforced."""


class Lineage(Model):
    """The versions and pins from which the decision was made.

    `unsafe` names the development stand-ins in use, and has `unsafe_observed` if the pack of the run observes.
    `asserted` names the unverified facts of the caller that policy accepted.
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
    """The id of the packet that starts a replay, and the hashes that the replay must reproduce."""

    replay_id: ReplayPacketId
    run_id: RunId
    compiled_context_hash: Digest | None = None
    tool_transcript_chain_hash: Digest | None = None


class AxisScore(Model):
    """The score of a run on one of five axes, from 0 to 1 (best), and the evaluator that gave it."""

    evaluator: Name
    score: Share
    threshold: Share
    status: Literal["pass", "fail"]
    findings: Seq[Text] = ()


class Scorecard(Model):
    """The scores of a run on five axes, and the verdict that follows: accept, replan or escalate."""

    policy: AxisScore
    utility: AxisScore
    latency: AxisScore
    safety: AxisScore
    economics: AxisScore
    verdict: ScoreVerdict


class DecisionRecord(Model):
    """The result of one decision of a run: outcome, evidence, approvals, scores and hashes. A change appends a new
    revision.

    `effects` are those of the steps that the decision governs, and `outputs` what the run has, whatever its end.
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
    effects: Seq[RecordedEffect] = ()
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
        """Yield a fault if the record claims a decision and has no outcome."""
        if self.status == "DECIDED" and self.outcome is None:
            yield "outcome", "status `DECIDED` does not say what was decided; give one of the allowed outcomes"


class ReplayExpectation(Model):
    """The final state and hashes that a replay of the run must reproduce."""

    status: RecordStatus
    decision_record_hash: Digest | None = None


class ReplayPacket(Model):
    """What a replay of a run starts from. The answers of tools are read from the journal; no adapter is called."""

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
