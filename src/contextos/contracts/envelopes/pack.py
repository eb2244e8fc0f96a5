"""The Context Pack, v2: ten layers, signed, immutable, and loaded by an exact pin.

Source: Reference Architecture, "ContextPack"; docs/design/contracts.md, "Packs, pins, budgets".
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from contextos.contracts.envelopes.evidence import Classification, EvidencePath
from contextos.contracts.envelopes.plan import DecisionSpec, Intent, Subject, TaskTemplate
from contextos.contracts.envelopes.policy import ApprovalMode, ArgConstraint, PolicyBundle
from contextos.contracts.envelopes.run import RunBudget
from contextos.contracts.ids import CapabilityId, EgressEndpoint, GateId, TenantId
from contextos.contracts.model import Map, Model, Name, NonEmpty, OpenObject, Positive, Seq, Share, Text

Semver = r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$"


class Compatibility(Model):
    """The components that a pack requires, each with a lower bound such as `>=0.1.0`. Without one of them the pack is
    refused.
    """

    requires: Map[Name] = {}


class ContractMeta(Model):
    """The version of the pack format, the issuer of the pack, and when it was made."""

    contract_name: Literal["contextos.context_pack"]
    contract_version: str = Field(pattern=r"^2\.[0-9]+\.[0-9]+$")
    issuer: Name
    created_at: Name
    compatibility: Compatibility = Compatibility()


class PackMeta(Model):
    """The identity of the pack, and the limits that it sets for every run.

    In `mode` `observe` the pack stops no call of its sessions: what it would have denied or asked is recorded.
    """

    pack_id: str = Field(pattern=r"^[A-Za-z0-9_.:-]{1,128}$")
    pack_version: str = Field(pattern=Semver)
    tenant: TenantId
    environment_defaults: OpenObject = {}
    ttl_seconds: Positive
    data_classification: Classification
    safety_ceiling: ApprovalMode = "destructive"
    mode: Literal["enforce", "observe"] = "enforce"
    run_budget: RunBudget | None = None
    max_session_duration_ms: Positive | None = None


class Ontology(Model):
    """Layer 1: the entity types and predicates that evidence can use."""

    namespace: Name
    version: str = Field(pattern=Semver)
    entity_types: Seq[Name]
    relationship_types: Seq[Name]


class IdentityLayer(Model):
    """Layer 2: the namespaces of entity ids (CEIDs) that the pack covers."""

    ceid_namespaces: Seq[Name]


class Retrieval(Model):
    """What a run retrieves from the knowledge graph, and the limits of that retrieval."""

    seeds: Seq[Subject]
    hops: int = Field(default=2, ge=0, le=4)
    fan_out: int = Field(default=50, ge=1, le=1000)
    limit: int = Field(default=200, ge=1, le=10_000)
    evidence: Seq[EvidencePath] = ()


class IntelligenceRefs(Model):
    """Layer 3: references to the knowledge that a run uses. No content is embedded."""

    ontology: Ontology
    identity_layer: IdentityLayer
    retrieval: Retrieval


class BusinessContext(Model):
    """Layer 4: a summary of the business context, and rules that are never negotiable."""

    summary: Text
    non_negotiables: Seq[Text] = ()


class ApprovalGate(Model):
    """An approval gate: the role that an approver needs, and what happens if nobody answers within `timeout_s` seconds
    of the question.
    """

    gate_id: GateId
    required_approver_role: Name
    timeout_s: int = Field(default=3600, ge=1, le=2_592_000)
    quorum: Positive = 1
    on_timeout: Literal["escalate", "deny"] = "escalate"


class Guardrails(Model):
    """Rule ids or JsonLogic conditions that win over every rule that allows, and the redaction rules to apply."""

    must_refuse: Seq[Any] = ()
    must_escalate: Seq[Any] = ()
    redaction_rules: Seq[Name] = ()


class PolicyLayer(Model):
    """Layer 5: policy bundles, guardrails and approval gates."""

    policy_bundles: Seq[PolicyBundle]
    guardrails: Guardrails = Guardrails()
    approval_gates: Seq[ApprovalGate] = ()


class AdapterEntry(Model):
    """An adapter, and the names of its tools (capabilities) that the pack is allowed to use."""

    adapter_id: Name
    capabilities: NonEmpty[Name]


class Permission(Model):
    """Permits one tool (capability) to the roles in `roles`.

    `agrees_with` maps an argument to a JSON Pointer into the request. The argument must equal the value there.
    Evidence counts for a call only if every argument of the call that produced it is the same here, under the same
    name. `evidence_args` says otherwise for one name of evidence: which of those arguments count, and the argument here
    that each must equal. An empty object says that the evidence is about no argument.
    """

    permission_id: Name
    adapter_id: Name
    capability: Name
    roles: NonEmpty[Name]
    allow: bool = True
    arg_constraints: Map[ArgConstraint] = {}
    agrees_with: Map[Name] = {}
    evidence_args: Map[Map[Name]] = {}


class ToolingLayer(Model):
    """Layer 6: the adapters and permissions of the pack. No permission overrides `prohibitions`.

    After an outage a write is sent or looked up again for at most `max_retry_s` seconds; then a person is asked. None:
    as long as the adapter remembers its key (`key_ttl_s`).
    """

    adapter_registry: Seq[AdapterEntry]
    permissions: Seq[Permission]
    prohibitions: Seq[CapabilityId] = ()
    egress: Seq[EgressEndpoint] = ()
    max_retry_s: int | None = Field(default=None, ge=0, le=2_592_000)


class DecisionLayer(Model):
    """Layer 7: the decision specs, intents and task templates of the pack."""

    decision_specs: Seq[DecisionSpec]
    intents: Seq[Intent] = ()
    task_templates: Seq[TaskTemplate] = ()


class MemoryLayer(Model):
    """Layer 8: what can be remembered, for how long (`tier_ttls`, in seconds by tier), and whether
    consent is needed.
    """

    tier_ttls: Map[Positive] = {}
    write_classes: Seq[Name] = ()
    consent_required: bool = True
    recall_limit: int = Field(default=20, ge=0, le=1000)


class EvalTarget(Model):
    """The minimum scores of one intent, each from 0 to 1. A run that scores lower fails that axis."""

    intent: Name
    policy: Share = 1.0
    utility: Share = 1.0
    latency: Share = 0.0
    safety: Share = 1.0
    economics: Share = 0.0


class EvaluationLayer(Model):
    """Layer 9: the minimum scores for each intent."""

    eval_targets: Seq[EvalTarget]


class ToneAndComms(Model):
    """Layer 10: how the agent writes."""

    voice: Text
    do: Seq[Text] = ()
    do_not: Seq[Text] = ()


class ContextPack(Model):
    """The declarative description of one workflow in ten layers: knowledge, policy, tools, decisions, memory,
    evaluation.
    """

    contract_meta: ContractMeta
    pack_meta: PackMeta
    intelligence_refs: IntelligenceRefs
    business_context: BusinessContext
    policy_layer: PolicyLayer
    tooling_layer: ToolingLayer
    decision_layer: DecisionLayer
    memory_layer: MemoryLayer
    evaluation_layer: EvaluationLayer
    tone_and_comms: ToneAndComms

    @property
    def pin(self) -> str:
        """Return the exact reference of this pack: `<pack_id>@<pack_version>`."""
        return f"{self.pack_meta.pack_id}@{self.pack_meta.pack_version}"


class IntentCatalog(Model):
    """Intents (what users can ask for) and task templates (plans with parameters) that are published without a pack."""

    catalog_id: Name
    version: str = Field(pattern=Semver)
    tenant: TenantId
    intents: Seq[Intent]
    task_templates: Seq[TaskTemplate]


class DecisionCatalog(Model):
    """Decision specs (the rules for one kind of decision) that are published without a pack."""

    catalog_id: Name
    version: str = Field(pattern=Semver)
    tenant: TenantId
    decision_specs: Seq[DecisionSpec]


class PolicyArtifact(Model):
    """A policy bundle that is published without a pack. It applies to one tenant, or without `tenant` to the whole
    platform.
    """

    version: str = Field(pattern=Semver)
    tenant: TenantId | None = None
    bundle: PolicyBundle
