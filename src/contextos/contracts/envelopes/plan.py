"""Intents, task templates, decision specs and the typed plan that the Planner proposes.

Source: How It Works, steps 1, 3 and 4.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, Strict, model_validator

from contextos.contracts.envelopes.policy import ApprovalMode
from contextos.contracts.envelopes.slots import AgentContextSlot
from contextos.contracts.ids import CapabilityId, GateId, PlanId
from contextos.contracts.model import Count, ListOnly, Map, Model, Name, NonEmpty, OpenObject, Seq, Text

BindingSource = Literal["request", "parameter", "pack", "evidence", "step"]


class Binding(Model):
    """A reference to a value: an RFC 6901 pointer into the request, the parameters of the intent, the pack, the
    evidence or the output of a step.

    For `parameter` the pointer is the name of the parameter, such as `/order_id`. For `evidence` the first token is the
    name of the evidence and the second is `value`, `subject` or `evidence_ref`. For `step` the first token is the step
    id, and the rest points into the output of the step.
    """

    source: BindingSource = Field(alias="from")
    """Where the value comes from: the request, a parameter of the intent, the pack, evidence, or the output of an
    earlier step.
    """
    pointer: str = Field(pattern=r"^(/([^/~]|~[01])*)+$", max_length=512)
    """A JSON Pointer (RFC 6901) to the value, such as `/input/context/order_id`."""


class Subject(Model):
    """The id (CEID, `type:id`) of an entity that a run is about: `type` and a bound id, or a bound CEID without
    `type`.
    """

    type: Name | None = None
    """The type of the entity, such as `customer`; absent, the bound value is a whole CEID such as `customer:cus_77`."""
    binding: Binding
    """Where the id of the entity comes from."""


class ParameterSource(Model):
    """One place where a parameter can come from: exactly one of the three fields."""

    context: Name | None = None
    """The name of a member of `input.context`, which the caller states."""
    message: str | None = Field(default=None, min_length=1, max_length=512)
    """An RE2 pattern that is searched in `input.message`. The text of its group, or without a group the whole match, is
    the value. Two matches with different values give no value.
    """
    evidence: Name | None = None
    """The name of evidence that the pack retrieves from the graph, such as the total of an order."""

    @model_validator(mode="after")
    def _refuse_other_than_one_source(self) -> Self:
        if sum(source is not None for source in (self.context, self.message, self.evidence)) != 1:
            raise ValueError("a source of a parameter is one of `context`, `message` and `evidence`")
        return self


class IntentParameter(Model):
    """A value that a run of an intent needs, and its sources in order. The first source that has a value counts; if no
    source has a value, the request ends with the name of the parameter.

    A value from `context` or `message` is always asserted, never trusted, whatever it says of itself.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")
    """The name of the parameter; bindings read it as `{"from": "parameter", "pointer": "/<name>"}`."""
    type: Literal["string", "integer", "number", "boolean"]
    """The type of the value; a value of another type ends the request."""
    description: Text = ""
    """The meaning of the value, for people who have to give it."""
    sources: Annotated[
        tuple[ParameterSource, ...], Strict(False), Field(alias="from", max_length=8), ListOnly(at_least=1)
    ]
    """Where the value comes from, the first place first; from 1 to 8."""


class TakenParameter(Model):
    """The value of one parameter of an intent, and where it was taken from.

    `place` is a pointer into the request, or the reference of the evidence. A value that the caller states or the user
    wrote is `asserted`; only a fact of the graph can be `trusted`.
    """

    name: Name
    value: Any
    origin: Literal["context", "message", "evidence"]
    place: Name
    integrity: Literal["asserted", "trusted", "untrusted"]


class Intent(Model):
    """One kind of request that the system can serve. `risk_class` is the highest approval mode that it can need."""

    intent_id: str = Field(min_length=1, max_length=128)
    """The name by which a request asks for it."""
    version: Name
    """The version of the intent, for records."""
    owner_role: Name
    """The role of the people to ask about the intent; it grants nothing."""
    description: Text = ""
    """What a request of this kind asks for, for people."""
    risk_class: ApprovalMode
    """The highest approval mode that a run of the intent can reach; pack and agent can lower it."""
    accepted_channels: Seq[Name] = ()
    """The channels from which a request is accepted; by default every channel."""
    locale_support: Seq[Name] = ()
    """The locales for which a request is accepted; by default every locale."""
    eligible_task_templates: NonEmpty[Name]
    """The ids of the task templates that a run can plan with, at least one; each is in the pack or a pinned catalog."""
    parameters: Annotated[tuple[IntentParameter, ...], Strict(False), Field(max_length=32), ListOnly()] = ()
    """The values that a run needs from the request or the graph, at most 32; by default none. If an intent has
    parameters, a rule whose facts are already known is announced when the context is compiled.
    """


class PlanStep(Model):
    """One proposed call. A value of `params` is a literal or a `Binding` (`{from, pointer}`)."""

    id: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    """The name of the step within its plan."""
    tool: CapabilityId
    """The id of the tool to call, `<adapter>.<name>`."""
    params: OpenObject = {}
    """The arguments by name, each a literal or a binding; the resolved arguments are checked against the schema of the
    tool.
    """
    depends_on: Seq[Name] = ()
    """The ids of earlier steps that have to be completed first."""
    approval_mode: ApprovalMode
    """The approval mode of the tool as the plan states it; a mode other than the declared one is refused."""
    requires: Seq[GateId] = ()
    """The gates at which a person has to approve the call, beside the gates that rules name."""


MAX_TEMPLATE_STEPS: Final = 64

Steps = Annotated[tuple[PlanStep, ...], Strict(False), Field(max_length=MAX_TEMPLATE_STEPS), ListOnly(at_least=1)]


class DecisionCheckpoint(Model):
    """A check after the step `after_step`, or without `after_step` before the first step: all evidence that the
    decision `decision_id` requires must be available. The decision governs every step that comes later.
    """

    decision_id: Name
    """The decision key whose evidence is checked here; a decision spec defines it."""
    after_step: Name | None = None
    """The id of the step after which it is checked; absent, before the first step."""


class Plan(Model):
    """A typed plan. The Planner proposes it and cannot execute it. `revision` counts replans from 0."""

    plan_id: PlanId
    """The id of the plan."""
    intent: Name
    """The id of the intent that the plan serves."""
    steps: Steps
    """The proposed calls in order, 1 to 64."""
    decision_checkpoints: Seq[DecisionCheckpoint] = ()
    """Where the evidence of a decision is checked."""
    revision: Count | None = None
    """The number of replans before this plan, from 0."""
    planner: Name | None = None
    """The planner, by name and version."""
    template_id: Name | None = None
    """The task template of the plan as `<id>@<version>`, if it has one."""


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
    """The entity that the memory is about."""
    predicate: Name
    """The property of the entity that the memory states, such as `prefers_channel`."""
    value: Any
    """The value of the memory, a literal or a binding."""
    write_class: Literal["evidence_link", "preference", "decision_outcome", "correction"]
    """The class of the memory; the memory layer of the pack has to list it."""
    tier_target: Literal["working", "episodic", "semantic", "durable"]
    """The tier that keeps the memory; its life time is that of the tier."""


class SlotStep(Model):
    """A context slot that is filled before planning. `project` binds the project whose artifacts can be selected."""

    slot: AgentContextSlot
    """The slot to fill."""
    project: Binding | None = None
    """The binding to the id of the project whose artifacts can be selected; absent, only artifacts of no project."""


class TaskTemplate(Model):
    """A plan with parameters for one intent. `plan_timeout_ms` is from 5,000 to 30,000.

    If `chosen_by` is `agent`, its runs are sessions: the steps are the tools that an agent can call, one after the
    other, in any order and any number of times, each call with its own arguments. Such steps have no `params` and no
    `depends_on`, and one checkpoint before the first step governs the steps that can change anything. If it is `model`,
    the same holds, and the runtime asks a model for the calls, as `judge.plan` in `decision_layer.models` says.

    Only slots listed in `context_slots` are filled. `outputs` are the bindings whose values become the outputs of the
    record, and `subjects` name the entities that the record is about.
    """

    template_id: Name
    """The name of the template."""
    version: Name
    """The version of the template, for records."""
    intent: Name
    """The id of the intent that the template serves; lint refuses a template whose intent does not list it."""
    chosen_by: Literal["template", "agent", "model"] = "template"
    """With `template` the steps are a plan; with `agent` they are the tools that an agent can call in a session, and
    with `model` the tools that the runtime offers a model.
    """
    plan_timeout_ms: int = Field(default=15_000, ge=5_000, le=30_000)
    """How long a planner can take, in milliseconds, from 5,000 to 30,000."""
    steps: Steps
    """The calls of the plan, from 1 to 64."""
    context_slots: Annotated[tuple[SlotStep, ...], Strict(False), Field(max_length=16), ListOnly()] = ()
    """The slots that are filled before planning, at most 16; by default none."""
    decision_checkpoints: Seq[DecisionCheckpoint] = ()
    """Where the evidence of a decision is checked; every step that changes something comes after one."""
    subjects: Seq[Subject] = ()
    """The entities that the record is about; by default none."""
    outputs: Map[Binding] = {}
    """The outputs of the record by name, each bound to a value."""
    memory: Seq[MemoryTemplate] = ()
    """The memories that a completed run proposes; by default none."""

    @property
    def is_session(self) -> bool:
        """Return whether an agent or a model chooses the calls of a run, one after the other."""
        return self.chosen_by != "template"


class DecisionSpec(Model):
    """The rules for one kind of decision: its owner, the evidence it requires and the outcomes it can have.
    Only a decision with the right `execute` is allowed to change anything outside.
    """

    decision_key: str = Field(min_length=1, max_length=128)
    """The name of the decision, which the record of a run states."""
    version: str = Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")
    """The version of the spec as `x.y.z`, which the record of a run states."""
    owner_role: Name
    """The role of the people to ask about the decision; it grants nothing."""
    required_evidence: Seq[Name]
    """The names of the evidence that has to be available before a step that the decision governs."""
    allowed_outcomes: NonEmpty[Name]
    """The outcomes of the decision; lint requires every outcome that a run can end with, and no other."""
    approval_mode: ApprovalMode
    """The highest approval mode of the steps that the decision governs."""
    decision_right: Literal["propose", "recommend", "execute", "escalate"]
    """What the decision is allowed to do; only `execute` can change something outside."""
    challenge_required: bool = False
    """Not enforced in this version; lint refuses true."""
    inputs_schema_ref: Name | None = None
    """Not enforced in this version; lint refuses a value."""
    outputs_schema_ref: Name | None = None
    """Not enforced in this version; lint refuses a value."""
    eligibility_rules: Seq[Any] = ()
    """Not enforced in this version; lint refuses an entry, so write a policy rule."""
