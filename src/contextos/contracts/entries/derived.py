"""The bodies of derived entries that are no wire model of their own."""

from __future__ import annotations

from contextos.contracts.envelopes.memory import MemoryProposal
from contextos.contracts.envelopes.policy import ApprovalMode, PolicyDecision
from contextos.contracts.envelopes.tool import ToolCallEnvelope, ToolResultEnvelope
from contextos.contracts.envelopes.verdicts import End, Failure, VerifyVerdict
from contextos.contracts.model import Amount, Count, Map, Model, Name, OpenObject, Positive, Seq, Share, Text


class ResolvedIntentBody(Model):
    """`intent.resolved`: the intent and the templates (`id@version`) that can serve it, best first."""

    intent_id: Name
    version: Name
    risk_class: Name
    templates: Seq[Name]
    confidence: Share


class DecidedPolicies(Model):
    """`policy.decided` of a whole surface, plan or slot."""

    decisions: Seq[PolicyDecision]


class VerifiedPlan(Model):
    """`plan.verified`: the Critic's verdict, and what is wrong with the plan."""

    verdict: VerifyVerdict
    failures: Seq[Failure]


class RefusedCall(Model):
    """`tool.refused`: why the gateway refused a call before it was sent."""

    envelope: ToolResultEnvelope


class ReservedBudget(Model):
    """What a dispatch may spend at most."""

    tool_calls: Count
    cost_cents: Amount


class DispatchedCall(Model):
    """`tool.dispatching`: the call as it is about to be sent. `provenance` names the source of each argument."""

    envelope: ToolCallEnvelope
    args_digest: Name
    mode: Name
    provenance: Map[Name]
    definition_digest: Name
    reservation: ReservedBudget
    not_after_us: Count
    approval_id: Name | None


class CheckedCheckpoint(Model):
    """`checkpoint.checked`: the evidence of a decision, by name, and the names that do not resolve."""

    decision_key: Name
    decision_version: Name
    satisfied: Map[Name]
    unresolved: Seq[Name]


class FrozenItem(Model):
    """One piece of evidence as it was frozen."""

    name: Name
    evidence_ref: Name
    digest: Name


class FrozenEvidence(Model):
    """`evidence.frozen`: the evidence that a call rests on, and the digest of the list."""

    items: Seq[FrozenItem]
    snapshot_hash: Name


class AskedApproval(Model):
    """`approval.asked`: the question to an approver.

    An approval covers `binding`; the approver sees `shown`; the ids in `barred` cannot approve.
    """

    approval_id: Name
    gate_id: Name
    required_role: Name
    deadline_us: Count
    evidence_snapshot_hash: Name
    binding: OpenObject
    binding_digest: Name
    shown: OpenObject
    shown_digest: Name
    barred: Seq[Name]
    approval_mode_effective: ApprovalMode
    denial_key: Text


class VoidedApproval(Model):
    """`approval.voided`: why an approval no longer holds."""

    approval_id: Name
    reason: Text


class ProposedMemories(Model):
    """`memory.proposed`: what the run proposes to remember."""

    proposals: Seq[MemoryProposal]


class EndedRun(Model):
    """`run.ended`: the end, the final record, and the number of entries including this one."""

    end: End
    record_id: Name
    record_hash: Name
    entries: Positive


RecheckedEvidence = dict[str, str | None]
"""`evidence.rechecked`: the digest now of everything an approval was bound to, by name; None for what was withdrawn."""
