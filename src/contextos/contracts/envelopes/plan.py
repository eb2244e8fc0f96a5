"""Intents, task templates, decision specs and the typed plan that the Planner proposes.

Source: How It Works, steps 1, 3 and 4.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Strict

from contextos.contracts.envelopes.policy import ApprovalMode
from contextos.contracts.envelopes.slots import AgentContextSlot
from contextos.contracts.ids import CapabilityId, GateId, PlanId
from contextos.contracts.model import Count, ListOnly, Map, Model, Name, NonEmpty, OpenObject, Seq, Text

BindingSource = Literal["request", "pack", "evidence", "step"]


class Binding(Model):
    """A reference to a value: an RFC 6901 pointer into the request, the pack, the evidence or the output of a step.

    For `evidence` the first token is the name of the evidence and the second is `value`, `subject` or `evidence_ref`.
    For `step` the first token is the step id, and the rest points into the output of the step.
    """

    source: BindingSource = Field(alias="from")
    pointer: str = Field(pattern=r"^(/([^/~]|~[01])*)+$", max_length=512)


class Subject(Model):
    """The id (CEID, `type:id`) of an entity that a run is about: `type` and a bound id, or a bound CEID without
    `type`.
    """

    type: Name | None = None
    binding: Binding


class Intent(Model):
    """One kind of request that the system can serve. `risk_class` is the highest approval mode that it can need."""

    intent_id: str = Field(min_length=1, max_length=128)
    version: Name
    owner_role: Name
    description: Text = ""
    risk_class: ApprovalMode
    accepted_channels: Seq[Name] = ()
    locale_support: Seq[Name] = ()
    eligible_task_templates: NonEmpty[Name]


class PlanStep(Model):
    """One proposed call. A value of `params` is a literal or a `Binding` (`{from, pointer}`)."""

    id: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    tool: CapabilityId
    params: OpenObject = {}
    depends_on: Seq[Name] = ()
    approval_mode: ApprovalMode
    requires: Seq[GateId] = ()


Steps = Annotated[tuple[PlanStep, ...], Strict(False), Field(max_length=64), ListOnly(at_least=1)]


class DecisionCheckpoint(Model):
    """A check after the step `after_step`, or without one before the first step: all evidence that the decision
    `decision_id` requires must be available. The decision governs every step that comes later.
    """

    decision_id: Name
    after_step: Name | None = None


class Plan(Model):
    """A typed plan. The Planner proposes it and cannot execute it. `revision` counts replans from 0."""

    plan_id: PlanId
    intent: Name
    steps: Steps
    decision_checkpoints: Seq[DecisionCheckpoint] = ()
    revision: Count | None = None
    planner: Name | None = None
    template_id: Name | None = None


class ProposedPlan(Model):
    """What a planner proposes: steps and checks for the template `template_id` (`id@version`), which fixes the
    outputs.
    """

    template_id: Name
    steps: Steps
    decision_checkpoints: Seq[DecisionCheckpoint] = ()


class MemoryTemplate(Model):
    """A pattern for a memory that a finished run proposes. A person must accept it before any run recalls it."""

    entity: Subject
    predicate: Name
    value: Any
    write_class: Literal["evidence_link", "preference", "decision_outcome", "correction"]
    tier_target: Literal["working", "episodic", "semantic", "durable"]


class SlotStep(Model):
    """A context slot that is filled before planning. `project` binds the project whose artifacts can be selected."""

    slot: AgentContextSlot
    project: Binding | None = None


class TaskTemplate(Model):
    """A plan with parameters for one intent. `plan_timeout_ms` is from 5,000 to 30,000.

    With `chosen_by` `agent` its runs are sessions: the steps are the tools that an agent can call, one after the other,
    in any order and any number of times, each with arguments of its own. Such steps have no `params` and depend on
    nothing, and one checkpoint before the first step governs those that can change anything.

    Only slots listed in `context_slots` are filled. `outputs` are the bindings whose values become the outputs of the
    record, and `subjects` name the entities that the record is about.
    """

    template_id: Name
    version: Name
    intent: Name
    chosen_by: Literal["template", "agent"] = "template"
    plan_timeout_ms: int = Field(default=15_000, ge=5_000, le=30_000)
    steps: Steps
    context_slots: Annotated[tuple[SlotStep, ...], Strict(False), Field(max_length=16), ListOnly()] = ()
    decision_checkpoints: Seq[DecisionCheckpoint] = ()
    subjects: Seq[Subject] = ()
    outputs: Map[Binding] = {}
    memory: Seq[MemoryTemplate] = ()


class DecisionSpec(Model):
    """The rules for one kind of decision: its owner, the evidence it requires and the outcomes it can have.
    Only a decision with the right `execute` is allowed to change anything outside.
    """

    decision_key: str = Field(min_length=1, max_length=128)
    version: str = Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")
    owner_role: Name
    required_evidence: Seq[Name]
    allowed_outcomes: NonEmpty[Name]
    approval_mode: ApprovalMode
    decision_right: Literal["propose", "recommend", "execute", "escalate"]
    challenge_required: bool = False
    inputs_schema_ref: Name | None = None
    outputs_schema_ref: Name | None = None
    eligibility_rules: Seq[Any] = ()
