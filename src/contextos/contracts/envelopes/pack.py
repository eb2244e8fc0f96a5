"""The Context Pack, v2: ten layers, signed, immutable, loaded by an exact pin.

Source: contextos-facts.md, section 6; Reference Architecture, "ContextPack".
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from contextos.contracts.envelopes.evidence import Classification, EvidencePath
from contextos.contracts.envelopes.plan import DecisionSpec, Intent, Subject, TaskTemplate
from contextos.contracts.envelopes.policy import ApprovalMode, ArgConstraint, PolicyBundle
from contextos.contracts.envelopes.run import RunBudget
from contextos.contracts.ids import CapabilityId, GateId, TenantId
from contextos.contracts.model import Map, Model, Name, NonEmpty, OpenObject, Positive, Seq, Share, Text

Semver = r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$"


class Compatibility(Model):
    """What a pack needs: name to a lower bound such as `>=0.1.0`. Unmet, the pack is refused."""

    requires: Map[Name] = {}


class ContractMeta(Model):
    """Which contract the pack follows, and who issued it when."""

    contract_name: Literal["contextos.context_pack"]
    contract_version: str = Field(pattern=r"^2\.[0-9]+\.[0-9]+$")
    issuer: Name
    created_at: Name
    compatibility: Compatibility = Compatibility()


class PackMeta(Model):
    """Identity of the pack; the ceilings that it sets on every run."""

    pack_id: str = Field(pattern=r"^[A-Za-z0-9_.:-]{1,128}$")
    pack_version: str = Field(pattern=Semver)
    tenant: TenantId
    environment_defaults: OpenObject = {}
    ttl_seconds: Positive
    data_classification: Classification
    safety_ceiling: ApprovalMode = "destructive"
    run_budget: RunBudget | None = None
    max_session_duration_ms: Positive | None = None


class Ontology(Model):
    """The vocabulary that evidence is expressed in."""

    namespace: Name
    version: str = Field(pattern=Semver)
    entity_types: Seq[Name]
    relationship_types: Seq[Name]


class IdentityLayer(Model):
    """The CEID namespaces that the pack may speak about."""

    ceid_namespaces: Seq[Name]


class Retrieval(Model):
    """What retrieval asks of the graph for each run, within these budgets."""

    seeds: Seq[Subject]
    hops: int = Field(default=2, ge=0, le=4)
    fan_out: int = Field(default=50, ge=1, le=1000)
    limit: int = Field(default=200, ge=1, le=10_000)
    evidence: Seq[EvidencePath] = ()


class IntelligenceRefs(Model):
    """Layer 3: references into the Intelligence plane; payloads stay out."""

    ontology: Ontology
    identity_layer: IdentityLayer
    retrieval: Retrieval


class BusinessContext(Model):
    """Layer 4: a durable summary, and what is never negotiable."""

    summary: Text
    non_negotiables: Seq[Text] = ()


class ApprovalGate(Model):
    """A gate: who must hold which role, and what silence means. `timeout_s` counts from the asking."""

    gate_id: GateId
    required_approver_role: Name
    timeout_s: int = Field(default=3600, ge=1, le=2_592_000)
    quorum: Positive = 1
    on_timeout: Literal["escalate", "deny"] = "escalate"


class Guardrails(Model):
    """Ids of rules or JsonLogic conditions that win over every allow, and the redaction rules in force."""

    must_refuse: Seq[Any] = ()
    must_escalate: Seq[Any] = ()
    redaction_rules: Seq[Name] = ()


class PolicyLayer(Model):
    """Layer 5."""

    policy_bundles: Seq[PolicyBundle]
    guardrails: Guardrails = Guardrails()
    approval_gates: Seq[ApprovalGate] = ()


class AdapterEntry(Model):
    """An adapter that the pack may use, and which of its capabilities."""

    adapter_id: Name
    capabilities: NonEmpty[Name]


class Permission(Model):
    """Grants one capability to the roles named. `agrees_with`: argument to the request's pointer that it must equal."""

    permission_id: Name
    adapter_id: Name
    capability: Name
    roles: NonEmpty[Name]
    allow: bool = True
    arg_constraints: Map[ArgConstraint] = {}
    agrees_with: Map[Name] = {}


class ToolingLayer(Model):
    """Layer 6: registry and permissions; `prohibitions` names capabilities that no permission can grant."""

    adapter_registry: Seq[AdapterEntry]
    permissions: Seq[Permission]
    prohibitions: Seq[CapabilityId] = ()


class DecisionLayer(Model):
    """Layer 7: decision specs, and the intents and task templates that the pack brings."""

    decision_specs: Seq[DecisionSpec]
    intents: Seq[Intent] = ()
    task_templates: Seq[TaskTemplate] = ()


class MemoryLayer(Model):
    """Layer 8: what may be remembered, how long (seconds per tier), and whether consent is asked."""

    tier_ttls: Map[Positive] = {}
    write_classes: Seq[Name] = ()
    consent_required: bool = True
    recall_limit: int = Field(default=20, ge=0, le=1000)


class EvalTarget(Model):
    """Thresholds of an intent's scorecard, each within 0 and 1; a score below its own is a fail on that axis."""

    intent: Name
    policy: Share = 1.0
    utility: Share = 1.0
    latency: Share = 0.0
    safety: Share = 1.0
    economics: Share = 0.0


class EvaluationLayer(Model):
    """Layer 9."""

    eval_targets: Seq[EvalTarget]


class ToneAndComms(Model):
    """Layer 10."""

    voice: Text
    do: Seq[Text] = ()
    do_not: Seq[Text] = ()


class ContextPack(Model):
    """The declarative contract of a workflow: ten required layers. Its address is `pack_id@pack_version`."""

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
        """The exact reference of this pack."""
        return f"{self.pack_meta.pack_id}@{self.pack_meta.pack_version}"


class IntentCatalog(Model):
    """Intents and task templates that are published by themselves."""

    catalog_id: Name
    version: str = Field(pattern=Semver)
    tenant: TenantId
    intents: Seq[Intent]
    task_templates: Seq[TaskTemplate]


class DecisionCatalog(Model):
    """Decision specs that are published by themselves."""

    catalog_id: Name
    version: str = Field(pattern=Semver)
    tenant: TenantId
    decision_specs: Seq[DecisionSpec]


class PolicyArtifact(Model):
    """A policy bundle that is published by itself, for a tenant or the whole platform."""

    version: str = Field(pattern=Semver)
    tenant: TenantId | None = None
    bundle: PolicyBundle
