"""The Context Pack, v2: ten layers, signed, immutable, and loaded by an exact pin.

Source: Reference Architecture, "ContextPack"; docs/design/contracts.md, "Packs, pins, budgets".
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from contextos.contracts.envelopes.evidence import Classification, EvidencePath
from contextos.contracts.envelopes.models import ModelOperation, ModelRef
from contextos.contracts.envelopes.plan import DecisionSpec, Intent, Subject, TaskTemplate
from contextos.contracts.envelopes.policy import ApprovalMode, ArgConstraint, PolicyBundle
from contextos.contracts.envelopes.run import RunBudget
from contextos.contracts.ids import CapabilityId, EgressEndpoint, GateId, TenantId
from contextos.contracts.model import Map, Model, Name, NonEmpty, OpenObject, Positive, Seq, Share, Text

Semver = r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$"


class Compatibility(Model):
    """The components that a pack requires, each with a lower bound such as `>=0.1.0`. If one is not met, every run of
    the pack is refused.
    """

    requires: Map[Name] = {}
    """The lowest versions that the pack needs, by component (`runtime` or `ontology`), each written `>=x.y.z`. With an
    unmet or unknown one every run is refused.
    """


class ContractMeta(Model):
    """The version of the pack format, the issuer of the pack, and when it was made."""

    contract_name: Literal["contextos.context_pack"]
    """The constant name of this format."""
    contract_version: str = Field(pattern=r"^2\.[0-9]+\.[0-9]+$")
    """The version of the format that the author read, `2.y.z`; every 2.x is read alike."""
    issuer: Name
    """The person who wrote the pack, and who cannot answer an approval of its runs."""
    created_at: Name
    """When the pack was written, as text for people."""
    compatibility: Compatibility = Compatibility()
    """The versions of components that the pack needs; by default it needs none."""


class PackMeta(Model):
    """The identity of the pack, and the limits that it sets for every run.

    In `mode` `observe` the pack stops no call of its sessions: its denials and questions are only recorded.
    """

    pack_id: str = Field(pattern=r"^[A-Za-z0-9_.:-]{1,128}$")
    """The name of the pack, the part of its pin before `@`."""
    pack_version: str = Field(pattern=Semver)
    """The version of the pack as `x.y.z`, the part of its pin after `@`; its content never changes once it is
    published.
    """
    tenant: TenantId
    """The tenant to which the pack belongs; another tenant can neither publish nor run it."""
    environment_defaults: OpenObject = {}
    """Notes of the author, any JSON object; they limit nothing, and a binding to the pack can read them."""
    ttl_seconds: Positive
    """A life time in seconds for programs that distribute packs; a published pack does not expire, it is withdrawn."""
    data_classification: Classification
    """The classification of the texts of the pack, of the memories of its runs and of the artifacts that fill its
    slots.
    """
    safety_ceiling: ApprovalMode = "destructive"
    """The highest approval mode that a run can reach; the ceilings of the intent and of the agent can lower it."""
    mode: Literal["enforce", "observe"] = "enforce"
    """With `enforce` the pack decides; with `observe` it stops no call of its sessions, and the denials and questions
    that it would have caused are recorded.
    """
    run_budget: RunBudget | None = None
    """The limits that the pack sets for each run; without them the limits of the deployment count. The lowest of
    several limits wins.
    """
    max_session_duration_ms: Positive | None = None
    """The longest duration of a run in milliseconds, from when it was received; by default the limit of the deployment
    counts.
    """


class Ontology(Model):
    """Layer 1: the entity types and predicates that evidence can use."""

    namespace: Name
    """The name of the vocabulary, for readers."""
    version: str = Field(pattern=Semver)
    """The version of the vocabulary as `x.y.z`, which `compatibility.requires` can name as `ontology`."""
    entity_types: Seq[Name]
    """The types of entities in the vocabulary, for readers; retrieval follows relationship types."""
    relationship_types: Seq[Name]
    """The predicates of the graph that `retrieval.evidence` can follow; lint refuses a path with another predicate."""


class IdentityLayer(Model):
    """Layer 2: the namespaces of entity ids (CEIDs) that the pack covers."""

    ceid_namespaces: Seq[Name]
    """The types of entities whose ids seeds and subjects can have; lint refuses a seed or subject of another type."""


class Retrieval(Model):
    """What a run retrieves from the knowledge graph, and the limits of that retrieval."""

    seeds: Seq[Subject]
    """The entities at which retrieval begins, each bound to a value of the request or the pack."""
    hops: int = Field(default=2, ge=0, le=4)
    """The largest distance from a seed, in edges, from 0 to 4."""
    fan_out: int = Field(default=50, ge=1, le=1000)
    """The most edges that are followed from one entity, from 1 to 1000."""
    limit: int = Field(default=200, ge=1, le=10_000)
    """The most edges that are retrieved in all, from 1 to 10,000."""
    evidence: Seq[EvidencePath] = ()
    """The pieces of evidence to look for, each with a name and a path from a seed; these limits hide none of them."""


class IntelligenceRefs(Model):
    """Layer 3: references to the knowledge that a run uses. No content is embedded."""

    ontology: Ontology
    """The vocabulary of entities and predicates."""
    identity_layer: IdentityLayer
    """The types of entities that the pack covers."""
    retrieval: Retrieval
    """What each run retrieves from the graph."""


class BusinessContext(Model):
    """Layer 4: a summary of the business context, and rules that are never negotiable."""

    summary: Text
    """What the workflow is for, as text for the planner."""
    non_negotiables: Seq[Text] = ()
    """Rules that are always part of the prompt, one text each. Only a policy rule can enforce such a rule."""


class ApprovalGate(Model):
    """An approval gate: the role that an approver needs, and what happens if nobody answers within `timeout_s` seconds
    of the question.
    """

    gate_id: GateId
    """The id by which rules and plan steps name the gate."""
    required_approver_role: Name
    """The role that a person holds in the directory both when they answer and when the answer is used."""
    timeout_s: int = Field(default=3600, ge=1, le=2_592_000)
    """How long the question waits for an answer, in seconds, at most 30 days."""
    quorum: Positive = 1
    """The number of approvers; lint refuses a value above 1."""
    on_timeout: Literal["escalate", "deny"] = "escalate"
    """What becomes of the call if nobody answers in time: `escalate` ends the run as escalated, `deny` denies the call.
    """


class Guardrails(Model):
    """Rule ids or JsonLogic conditions that win over every rule that allows, and the redaction rules to apply."""

    must_refuse: Seq[Any] = ()
    """Ids of rules, or JsonLogic conditions; a call for which one is true is denied, whatever other rules allow."""
    must_escalate: Seq[Any] = ()
    """Ids of rules, or JsonLogic conditions; a run for which one is true is escalated before its next call."""
    redaction_rules: Seq[Name] = ()
    """The kinds of data that are removed before anything is recorded, such as `email`. Secrets are always removed."""


class PolicyLayer(Model):
    """Layer 5: policy bundles, guardrails and approval gates."""

    policy_bundles: Seq[PolicyBundle]
    """The policy bundles of the pack; they can tighten the rules of the tenant and the platform, and never loosen them.
    """
    guardrails: Guardrails = Guardrails()
    """Refusals, escalations and redactions that win over every rule that allows."""
    approval_gates: Seq[ApprovalGate] = ()
    """The gates that rules and steps of the pack can name."""


class AdapterEntry(Model):
    """An adapter, and the names of its tools (capabilities) that the pack is allowed to use."""

    adapter_id: Name
    """The id of an adapter that the deployment registers; lint refuses an unknown one."""
    capabilities: NonEmpty[Name]
    """The names of the tools of this adapter that the pack uses, at least one, without the adapter's id."""


class Permission(Model):
    """Permits one tool (capability) to the roles in `roles`.

    `agrees_with` maps an argument to a JSON Pointer into the request. The argument must equal the value there.
    Evidence counts for a call only if this call has every argument of the call that produced the evidence, with the
    same name and value. `evidence_args` replaces this condition for one name of evidence: it names the arguments of the
    producing call that count, each with the argument of this call that it must equal. `{}` compares none.

    `consent` names the evidence that says whether the person concerned agrees to such a call. Unless this evidence is
    about the arguments of the call and `true`, the call is blocked as `consent_missing`.
    """

    permission_id: Name
    """The name of the permission in messages of lint."""
    adapter_id: Name
    """The adapter of the tool, an entry of `adapter_registry`."""
    capability: Name
    """The name of the tool within its adapter."""
    roles: NonEmpty[Name]
    """The roles that can use the tool, at least one; the role of the user in the directory is compared with them."""
    allow: bool = True
    """Whether the roles can use the tool; false takes it from them, whatever another permission says."""
    arg_constraints: Map[ArgConstraint] = {}
    """Limits on arguments by name, which every call under this permission meets."""
    agrees_with: Map[Name] = {}
    """A JSON Pointer into the request by the name of an argument; the argument has to equal the value there."""
    evidence_args: Map[Map[Name]] = {}
    """By the name of evidence, the arguments that count of the call that produced the evidence, each with the argument
    of this tool that it has to equal.
    """
    consent: Name | None = None
    """The evidence that has to be `true` about the arguments of every call, as the consent of the person concerned."""
    without_sum: Text = ""
    """Why no sum limits the money that the tool moves, for readers; without this text lint asks for a sum."""


class ToolingLayer(Model):
    """Layer 6: the adapters and permissions of the pack. No permission overrides `prohibitions`.

    After an outage a write is sent or looked up again for at most `max_retry_s` seconds; then a person is asked. None:
    as long as the external system remembers the write's key (`key_ttl_s`).
    """

    adapter_registry: Seq[AdapterEntry]
    """The adapters and tools that the pack uses; a tool that is not listed is never shown or called."""
    permissions: Seq[Permission]
    """Who can use which tool, with which arguments; a tool without a permission is withheld."""
    prohibitions: Seq[CapabilityId] = ()
    """The ids of tools that no permission or rule of the pack can allow."""
    egress: Seq[EgressEndpoint] = ()
    """The endpoints that calls can reach; an endpoint is reached only if the list of the tenant allows it too."""
    max_retry_s: int | None = Field(default=None, ge=0, le=2_592_000)
    """The longest time in seconds in which a write of unknown outcome is sent or looked up again; by default the life
    time of its key.
    """


class ModelUse(Model):
    """One thing that runs of the pack ask a model for. Without an entry for an operation no model is called for it."""

    operation: ModelOperation
    """What a model is asked for; `judge.plan` makes plans, and chooses the calls of templates with `chosen_by` `model`.
    """
    rules: ModelRef
    """The routing rules that choose the model, as `<id>@<x.y.z>`; each run pins them and their profiles."""
    prompt_fragment: Text = ""
    """The author's text for the model, which follows the other instructions; `judge.verify` and `judge.score` need it
    as their rubric.
    """


class DecisionLayer(Model):
    """Layer 7: the decision specs, intents and task templates of the pack, and what its runs ask models for."""

    decision_specs: Seq[DecisionSpec]
    """The kinds of decisions that the pack can make; a tool that changes something belongs to one."""
    intents: Seq[Intent] = ()
    """The kinds of requests that the pack serves."""
    task_templates: Seq[TaskTemplate] = ()
    """The plans with parameters that intents name as eligible."""
    models: Seq[ModelUse] = ()
    """What models are asked for, each operation once; by default no model is called."""


class MemoryLayer(Model):
    """Layer 8: what can be remembered, for how long (`tier_ttls`, in seconds by tier), and whether
    consent is needed.
    """

    tier_ttls: Map[Positive] = {}
    """The life time of a memory in seconds, by its tier; a tier without an entry does not expire."""
    write_classes: Seq[Name] = ()
    """The classes of memory that a run can propose; by default none."""
    consent_required: bool = True
    """Whether a memory needs the consent of the user before a person can promote it."""
    recall_limit: int = Field(default=20, ge=0, le=1000)
    """The most memories that a run recalls, from 0 to 1000."""


class EvalTarget(Model):
    """The minimum scores of one intent, each from 0 to 1. A run that scores lower fails that axis."""

    intent: Name
    """The id of the intent that the scores are for; lint refuses an unknown one."""
    policy: Share = 1.0
    """The lowest score for keeping to policy, from 0 to 1."""
    utility: Share = 1.0
    """The lowest share of the steps of the plan that were completed, from 0 to 1."""
    latency: Share = 0.0
    """The lowest share of the wall clock that was left over, from 0 to 1."""
    safety: Share = 1.0
    """The lowest score for safety of outputs and effects, from 0 to 1."""
    economics: Share = 0.0
    """The lowest share of the cost limit that was left over, from 0 to 1."""


class EvaluationLayer(Model):
    """Layer 9: the minimum scores for each intent."""

    eval_targets: Seq[EvalTarget]
    """The lowest scores that are accepted, for each intent; an intent without an entry has the defaults."""


class ToneAndComms(Model):
    """Layer 10: how the agent writes."""

    voice: Text
    """How the agent writes, as text of the prompt."""
    do: Seq[Text] = ()
    """What the agent does when it writes, one text each for the prompt."""
    do_not: Seq[Text] = ()
    """What the agent avoids when it writes, one text each for the prompt."""


class ContextPack(Model):
    """The declarative description of one workflow in ten layers: knowledge, policy, tools, decisions, memory,
    evaluation.
    """

    contract_meta: ContractMeta
    """The format of the pack, and who wrote it."""
    pack_meta: PackMeta
    """The identity of the pack, and the limits of its runs."""
    intelligence_refs: IntelligenceRefs
    """Layers 1 to 3: the knowledge that a run uses, by reference."""
    business_context: BusinessContext
    """Layer 4: what the workflow is for."""
    policy_layer: PolicyLayer
    """Layer 5: rules, guardrails and gates."""
    tooling_layer: ToolingLayer
    """Layer 6: tools, and who can use them."""
    decision_layer: DecisionLayer
    """Layer 7: decisions, intents and plans."""
    memory_layer: MemoryLayer
    """Layer 8: what can be remembered."""
    evaluation_layer: EvaluationLayer
    """Layer 9: the scores that a run has to reach."""
    tone_and_comms: ToneAndComms
    """Layer 10: how the agent writes."""

    @property
    def pin(self) -> str:
        """Return the exact reference of this pack: `<pack_id>@<pack_version>`."""
        return f"{self.pack_meta.pack_id}@{self.pack_meta.pack_version}"


class IntentCatalog(Model):
    """Intents (what users can ask for) and task templates (plans with parameters) that are published without a pack."""

    catalog_id: Name
    """The name of the catalog, the part of its pin before `@`."""
    version: str = Field(pattern=Semver)
    """The version of the catalog as `x.y.z`."""
    tenant: TenantId
    """The tenant to which the catalog belongs."""
    intents: Seq[Intent]
    """The intents that packs can share."""
    task_templates: Seq[TaskTemplate]
    """The task templates that packs can share."""


class DecisionCatalog(Model):
    """Decision specs (the rules for one kind of decision) that are published without a pack."""

    catalog_id: Name
    """The name of the catalog, the part of its pin before `@`."""
    version: str = Field(pattern=Semver)
    """The version of the catalog as `x.y.z`."""
    tenant: TenantId
    """The tenant to which the catalog belongs."""
    decision_specs: Seq[DecisionSpec]
    """The decision specs that packs can share."""


class PolicyArtifact(Model):
    """A policy bundle that is published without a pack. It applies to one tenant, or without `tenant` to the whole
    platform.
    """

    version: str = Field(pattern=Semver)
    """The version of the policy as `x.y.z`."""
    tenant: TenantId | None = None
    """The tenant to which the rules apply; without one they apply to the whole platform."""
    bundle: PolicyBundle
    """The rules."""
