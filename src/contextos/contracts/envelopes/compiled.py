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
    """Where the text comes from, such as `request` or a source of the graph."""
    integrity: IntegrityLevel
    """Whether the text can be relied on."""
    classification: Classification
    """Who can see the text."""
    observed_at_us: Whole | None = None
    """When the text was observed, in Unix microseconds; absent, when the run began."""
    instruction_treatment: Literal["data_only", "instruction"]
    """Whether the text is only data or can instruct the model; text that is not trusted is only data."""


class ContextBlock(Model):
    """One block of the prompt. A block with a larger `priority` is kept first; a block is kept or dropped whole."""

    block_id: Name
    """The name of the block, unique in its prompt."""
    bucket: Bucket
    """The part of the prompt whose tokens the block uses."""
    content: Text
    """The text of the block."""
    priority: Whole
    """The rank of the block when tokens are short: larger numbers are kept first, equal ones by `block_id`."""
    provenance_refs: Seq[EvidenceRef] = ()
    """References to the evidence that the text was made from."""
    truncated: bool = False
    """Whether the text was cut; the compiler drops a block whole, so this is false."""
    provenance: BlockProvenance | None = None
    """The source of the text."""


class CompiledPrompt(Model):
    """The prompt of a run, one of the compiler's outputs. No decision of the runtime depends on it."""

    system: Text
    """The instructions on how the agent reads and writes."""
    developer: Text
    """The pack's text about the workflow and its rules."""
    task: Text
    """The intent, the template and the task of the planner."""
    context_blocks: Seq[ContextBlock]
    """The blocks that fit the token budget."""


class PolicyManifestEntry(Model):
    """A policy bundle that applied to the run, and the ids of its rules that matched."""

    bundle_id: BundleId
    """The id of the policy bundle."""
    rule_ids: Seq[RuleId]
    """The ids of its rules that matched."""


class CapabilityMetadata(Model):
    """The risk class and approval mode of a tool, as the planner sees them."""

    kind: CapabilityKind
    """Whether the tool reads or writes."""
    risk_level: RiskLevel
    """What an effect of the tool means: none, reversible or irreversible."""
    approval_mode: ApprovalMode
    """The approval mode that the run's policy sets for the tool."""
    source: Name
    """Where the tool comes from."""


class ToolManifestEntry(Model):
    """The tools of one adapter that this run is allowed to see."""

    adapter_id: Name
    """The id of the adapter."""
    capabilities: Seq[Name]
    """The names of its tools that the run can see."""
    constraints: Map[Map[Seq[ArgConstraint]]] = {}
    """The limits that each call has to meet, by the name of the tool and then of the argument."""
    capability_metadata: Map[CapabilityMetadata] = {}
    """The risk and approval mode of each tool, by its name."""


class EvidenceManifestEntry(Model):
    """A piece of evidence that the run is allowed to use."""

    evidence_ref: EvidenceRef
    """The reference to the evidence."""
    source_id: Name | None = None
    """The source of the evidence, if it has a name of its own."""
    hash: Digest | None = None
    """The digest of the evidence."""
    name: Name | None = None
    """The name by which requirements can ask for the evidence; absent if it has none."""


class Omission(Model):
    """A block that was left out of the prompt because it did not fit the token budget, and the reason."""

    block_id: Name
    """The name of the block that was left out."""
    bucket: Bucket
    """The part of the prompt that had too few tokens."""
    reason: Literal["over_budget"]
    """Why the block was left out; there is one reason."""
    estimated_tokens: Count
    """The tokens that the block would have used."""
    priority: Whole
    """The rank of the block."""


class SurfaceEntry(Model):
    """A registered tool, whether this run is allowed to see it, and why."""

    capability_id: CapabilityId
    """The id of the tool."""
    surfaced: bool
    """Whether the run can see the tool."""
    reason: Name
    """`surfaced`, or the first reason that hides the tool."""


class TraceHeaders(Model):
    """The place of a run in the caller's trace and the ids of the run, in the form of the W3C trace headers. No
    decision uses these headers, and they are never sent (API Contracts, "Trace context propagation").
    """

    traceparent: HeaderText
    """The header `traceparent` of the caller."""
    tracestate: HeaderText | None = None
    """`tenant` and `ctxpack` of the run, followed by the well-formed members that the caller sent."""
    baggage: HeaderText | None = None
    """`session_id`, `decision_id` and `run_id`, followed by the well-formed members that the caller sent."""


class PreservedTrace(Model):
    """The trace headers as they are kept for a replay."""

    trace_context: TraceHeaders


class Redaction(Model):
    """A place from which content was removed before it was recorded, the kinds of this content, and the rules of the
    pack and the tenant by which it was removed.
    """

    place: Text
    """Where the content was: `request:<pointer>`, or `<evidence_ref>:<pointer>` into the value of the evidence."""
    kinds: Seq[Name]
    """The kinds of the removed content, such as `email`."""
    rules: Seq[Name]
    """The redaction rules by which it was removed; a secret is removed without a rule."""


class Manifests(Model):
    """Lists of the policies, tools and evidence that the run is allowed to use, and of what was left out."""

    policy_manifest: Seq[PolicyManifestEntry]
    """The policy bundles that applied."""
    tool_manifest: Seq[ToolManifestEntry]
    """The tools that the run can see."""
    evidence_manifest: Seq[EvidenceManifestEntry]
    """The evidence that the run can use."""
    omissions: Seq[Omission] = ()
    """The blocks that were left out for lack of tokens."""
    surface_report: Seq[SurfaceEntry] = ()
    """Every registered tool, with the reason why the run can see it or not."""
    redactions: Seq[Redaction] = ()
    """The places from which content was removed before it was recorded."""
    trace_context: TraceHeaders | None = None
    """The caller's place in its trace, and the ids of the run."""


class RuntimeControls(Model):
    """The controls that apply to the run: refusals, escalations, approval gates and redaction rules.

    The DecisionRecord, which is the result of the run, contains a copy.
    """

    must_refuse: Seq[Text]
    """The guardrails by which calls are refused."""
    must_escalate: Seq[Text]
    """The guardrails by which the run is escalated."""
    approval_gates_active: Seq[GateId]
    """The ids of the gates at which a person has to approve."""
    redaction_rules_active: Seq[Name]
    """The redaction rules in force."""


class RecordedReport(Model):
    """A `BudgetReport` as the journal states it: without `tokens_allocated`, which follows from `run.context`."""

    tokens_used_at_compile: Count
    """The tokens of the whole prompt, as estimated."""
    tokens_used_by_bucket: dict[Bucket, Count]
    """The tokens that each part of the prompt uses."""
    bucket_truncations: dict[Bucket, bool]
    """By part of the prompt: true if a block of this part was left out."""
    dropped_block_ids: dict[Bucket, Seq[Name]]
    """The names of the blocks of each part that were left out."""
    warnings: Seq[Text]
    """Remarks for people about the budget."""


class BudgetReport(RecordedReport):
    """The tokens allocated to and used by each bucket of the prompt, and every block that was cut or left out."""

    tokens_allocated: dict[Bucket, Count]
    """The tokens that each part of the prompt was given."""


class LedgerBudget(Model):
    """The token budget of a compiled context in short form: a part of the context ledger."""

    tokens_used_at_compile: Count
    """The tokens of the whole prompt, as estimated."""
    truncated_buckets: Seq[Bucket]
    """The parts of the prompt of which a block was left out."""


class RecordedLedger(Model):
    """A `ContextLedger` as the journal states it: without the fields that follow from request, pins and budget."""

    policy_bundles: Seq[BundleId]
    """The ids of the policy bundles that applied."""
    tools: Seq[CapabilityId]
    """The ids of the tools that the run can see."""
    evidence_refs: Seq[EvidenceRef]
    """References to the evidence that the run can use."""
    memory_refs: Seq[EvidenceRef]
    """References to the memories in the prompt."""
    compiled_context_hash: Digest
    """The digest of prompt, manifests, runtime controls and budget report; a replay has to reproduce it."""
    stage_digests: Map[Digest] | None = None
    """The digest of the output of each stage of the compiler, by the stage's name. The journal leaves out the last
    stage, whose digest is `compiled_context_hash`.
    """


class ContextLedger(RecordedLedger):
    """The identity of a compiled context: its hash over prompt, manifests, runtime controls and budget report."""

    pack_ref: Pin
    """The pin of the pack."""
    request_id: RequestId
    """The id of the request."""
    budget: LedgerBudget
    """The token budget in short form."""
    trace_id: TraceId | None = None
    """The id of the caller's trace."""
    estimator: Name | None = None
    """The name and version of the token estimator, such as `bytes_div_4@1`."""

    required_when_sealed: ClassVar[tuple[str, ...]] = ("estimator", "stage_digests")


class CompiledContext(Model):
    """The output of the context compiler: the prompt, tools and evidence that one run is allowed to use."""

    compiled_prompt: CompiledPrompt
    """The texts for the planner."""
    manifests: Manifests
    """What the run can use, and what was left out."""
    runtime_controls: RuntimeControls
    """The refusals, escalations, gates and redactions that apply."""
    budget_report: BudgetReport
    """The tokens that were given and used."""
    context_ledger: ContextLedger
    """The identity of this context, with its hash."""


class RecordedManifests(Model):
    """The parts of a compiled context's manifests that no other entry of its run states; absent parts are empty."""

    policy_manifest: Seq[PolicyManifestEntry] = ()
    """The policy bundles that applied, and which of their rules were announced."""
    omissions: Seq[Omission] = ()
    """The blocks that were left out for lack of tokens."""
    surface_report: Seq[SurfaceEntry] = ()
    """The registered tools that the run cannot see, with the reason."""
    redactions: Seq[Redaction] = ()
    """The places from which content was removed before it was recorded."""


class RecordedContext(Model):
    """Body of `context.compiled` if no planner reads the text: the identity of a compiled context and the reasons for
    its content. The text and the other manifests follow from the earlier entries and the pins of the run; the digest in
    `context_ledger` covers them.
    """

    manifests: RecordedManifests
    """What the run cannot use, what was left out, and what was redacted."""
    runtime_controls: RuntimeControls
    """The refusals, escalations, gates and redactions that apply."""
    budget_report: RecordedReport
    """The tokens that were given and used."""
    context_ledger: RecordedLedger
    """The identity of the context, with its hash and the digest of each stage."""


class SurfaceCapability(Model):
    """One registered tool (capability) as this tenant, user and agent see it now: an input of the compiler.

    `granted` is true if the pack lists the tool and permits it to the caller's roles and scopes. Otherwise `withheld`
    is the reason, such as `not_in_pack`, `no_permission`, `prohibited`, `scope_missing` or `platform_scope_missing`.
    `constraints` come from the permission.
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
