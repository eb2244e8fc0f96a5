"""CompiledContext: the prompt, tools and evidence that a run is allowed to use, with its budget report and ledger.

Source: API Contracts, "Compiled output"; docs/design/contracts.md, "Compile".
"""

from __future__ import annotations

from typing import ClassVar, Literal

from contextos.contracts.envelopes.evidence import Classification, IntegrityLevel
from contextos.contracts.envelopes.policy import ApprovalMode, ArgConstraint
from contextos.contracts.envelopes.run import Bucket
from contextos.contracts.envelopes.tool import CapabilityKind, RiskLevel
from contextos.contracts.ids import BundleId, CapabilityId, Digest, GateId, Pin, RequestId, RuleId, TraceId
from contextos.contracts.model import Count, Map, Model, Name, Seq, Text, Whole
from contextos.contracts.refs import EvidenceRef
from contextos.contracts.trace import HeaderText


class BlockProvenance(Model):
    """The source of a block of the prompt, and whether its text is data or an instruction."""

    origin: Name
    integrity: IntegrityLevel
    classification: Classification
    observed_at_us: Whole | None = None
    instruction_treatment: Literal["data_only", "instruction"]


class ContextBlock(Model):
    """One block of the prompt. A block with a larger `priority` is kept first; a block is kept or dropped whole."""

    block_id: Name
    bucket: Bucket
    content: Text
    priority: Whole
    provenance_refs: Seq[EvidenceRef] = ()
    truncated: bool = False
    provenance: BlockProvenance | None = None


class CompiledPrompt(Model):
    """The prompt of a run, one of the compiler's outputs. No decision of the runtime depends on it."""

    system: Text
    developer: Text
    task: Text
    context_blocks: Seq[ContextBlock]


class PolicyManifestEntry(Model):
    """A policy bundle that applied to the run, and the ids of its rules that matched."""

    bundle_id: BundleId
    rule_ids: Seq[RuleId]


class CapabilityMetadata(Model):
    """The risk class and approval mode of a tool, as the planner sees them."""

    kind: CapabilityKind
    risk_level: RiskLevel
    approval_mode: ApprovalMode
    source: Name


class ToolManifestEntry(Model):
    """The tools of one adapter that this run is allowed to see."""

    adapter_id: Name
    capabilities: Seq[Name]
    constraints: Map[Map[Seq[ArgConstraint]]] = {}
    capability_metadata: Map[CapabilityMetadata] = {}


class EvidenceManifestEntry(Model):
    """A piece of evidence that the run is allowed to use."""

    evidence_ref: EvidenceRef
    source_id: Name | None = None
    hash: Digest | None = None
    name: Name | None = None


class Omission(Model):
    """A block that was left out of the prompt because it did not fit the token budget, and the reason."""

    block_id: Name
    bucket: Bucket
    reason: Literal["over_budget"]
    estimated_tokens: Count
    priority: Whole


class SurfaceEntry(Model):
    """A registered tool, whether this run is allowed to see it, and why."""

    capability_id: CapabilityId
    surfaced: bool
    reason: Name


class TraceHeaders(Model):
    """The W3C trace headers of the caller, unchanged. No decision uses them (API Contracts, "Trace context
    propagation").
    """

    traceparent: HeaderText
    tracestate: HeaderText | None = None
    baggage: HeaderText | None = None


class PreservedTrace(Model):
    """The caller's trace headers as they are kept for a replay."""

    trace_context: TraceHeaders


class Redaction(Model):
    """A place that something was redacted from before it was recorded, the kinds of what it was, and the rules of the
    pack and the tenant that say so. Secrets need no rule.

    `place` is `request:<pointer>`, or `<evidence_ref>:<pointer>` into the value of the evidence.
    """

    place: Text
    kinds: Seq[Name]
    rules: Seq[Name]


class Manifests(Model):
    """Lists of the policies, tools and evidence that the run is allowed to use, and of what was left out."""

    policy_manifest: Seq[PolicyManifestEntry]
    tool_manifest: Seq[ToolManifestEntry]
    evidence_manifest: Seq[EvidenceManifestEntry]
    omissions: Seq[Omission] = ()
    surface_report: Seq[SurfaceEntry] = ()
    redactions: Seq[Redaction] = ()
    trace_context: TraceHeaders | None = None


class RuntimeControls(Model):
    """The controls that apply to the run: refusals, escalations, approval gates and redaction rules.

    The DecisionRecord, which is the result of the run, contains a copy.

    """

    must_refuse: Seq[Text]
    must_escalate: Seq[Text]
    approval_gates_active: Seq[GateId]
    redaction_rules_active: Seq[Name]


class BudgetReport(Model):
    """The tokens allocated to and used by each bucket of the prompt, and every block that was cut or left out."""

    tokens_allocated: dict[Bucket, Count]
    tokens_used_at_compile: Count
    tokens_used_by_bucket: dict[Bucket, Count]
    bucket_truncations: dict[Bucket, bool]
    dropped_block_ids: dict[Bucket, Seq[Name]]
    warnings: Seq[Text]


class LedgerBudget(Model):
    """The token budget of a compiled context in short form: a part of the context ledger."""

    tokens_used_at_compile: Count
    truncated_buckets: Seq[Bucket]


class ContextLedger(Model):
    """The identity of a compiled context: its hash over prompt, manifests, runtime controls and budget report."""

    pack_ref: Pin
    request_id: RequestId
    policy_bundles: Seq[BundleId]
    tools: Seq[CapabilityId]
    evidence_refs: Seq[EvidenceRef]
    memory_refs: Seq[EvidenceRef]
    budget: LedgerBudget
    compiled_context_hash: Digest
    trace_id: TraceId | None = None
    estimator: Name | None = None
    stage_digests: Map[Digest] | None = None

    required_when_sealed: ClassVar[tuple[str, ...]] = ("estimator", "stage_digests")


class CompiledContext(Model):
    """The output of the context compiler: the prompt, tools and evidence that one run is allowed to use."""

    compiled_prompt: CompiledPrompt
    manifests: Manifests
    runtime_controls: RuntimeControls
    budget_report: BudgetReport
    context_ledger: ContextLedger


class SurfaceCapability(Model):
    """One registered tool (capability) as this tenant, user and agent see it now: an input of the compiler.

    `granted` is true if the pack lists the tool and permits it to the caller's roles and scopes. Otherwise `withheld`
    is the reason: `not_in_pack`, `no_permission`, `prohibited` or `scope_missing`. `constraints` come from the
    permission.
    """

    capability_id: CapabilityId
    kind: CapabilityKind
    risk_level: RiskLevel
    approval_mode: ApprovalMode
    description: Text = ""
    lifecycle: Literal["active", "suspended", "killed"] = "active"
    granted: bool
    withheld: Name | None = None
    constraints: Map[Seq[ArgConstraint]] = {}
    definition_digest: Digest
