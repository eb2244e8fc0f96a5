"""Policy: bundles of rules as authored, and the decision at one enforcement point.

Source: Reference Architecture, "Trust plane"; docs/design/contracts.md, "Policy", "Approval modes".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from contextos.contracts.ids import BundleId, Digest, GateId, PolicyDecisionId, RuleId
from contextos.contracts.model import Map, Model, Name, NonEmpty, Number, Seq, Text, Whole

ApprovalMode = Literal["read_only", "local_write", "network", "delegated", "destructive"]
APPROVAL_MODES: tuple[ApprovalMode, ...] = ("read_only", "local_write", "network", "delegated", "destructive")
"""In order of rising risk."""

Point = Literal["compile", "plan", "execute", "model", "memory", "commit"]
POINTS: tuple[Point, ...] = ("compile", "plan", "execute", "model", "memory", "commit")

Level = Literal["platform", "tenant", "pack"]
LEVELS: tuple[Level, ...] = ("platform", "tenant", "pack")
"""From strong to weak: a rule at a later level cannot loosen a rule at an earlier one."""

FactType = Literal["boolean", "number", "string", "array", "object"]


class AppliesTo(Model):
    """The scope of a rule. An absent field matches every value."""

    intent: Name | None = None
    capability: Name | None = None
    point: Point | None = None
    environment: Name | None = None


class ArgConstraint(Model):
    """A bound on one argument of a call.

    With `unless_approved` a redeemed approval lifts `min`, `max`, `enum` and `pattern`.
    """

    min: Number | None = None
    max: Number | None = None
    enum: Seq[Any] | None = None
    required: bool | None = None
    pattern: str | None = Field(default=None, max_length=512)
    unless_approved: bool = False


class Then(Model):
    """The effect of a rule that matches."""

    allow: bool
    approval_mode: ApprovalMode | None = None
    requires: Seq[Name] = ()
    prohibits: Seq[Name] = ()
    requires_approval_gate: GateId | None = None
    arg_constraints: Map[ArgConstraint] = {}


class Rule(Model):
    """One JsonLogic rule. `facts` declares the type of a path in the condition that cannot be inferred."""

    rule_id: RuleId
    applies_to: AppliesTo = AppliesTo()
    condition: Any = Field(alias="if")
    then: Then
    decision_binding: Name | None = None
    rationale: Text = ""
    non_enforcing: bool = False
    facts: Map[FactType] = {}


class PolicyDsl(Model):
    """The rules of a bundle, and their language."""

    language: Literal["jsonlogic"]
    rules: NonEmpty[Rule]


class PolicyBundle(Model):
    """Rules that are published together. A larger `priority` is listed first; it never overrides a deny."""

    bundle_id: BundleId
    priority: Whole = 0
    mode: Literal["enforce", "observe"] = "enforce"
    accept_asserted: Seq[Name] = ()
    policy_dsl: PolicyDsl


class Indeterminate(Model):
    """An enforced rule that could not be evaluated, and its unusable facts (missing, null or of the wrong type)."""

    rule_id: RuleId
    facts: Seq[Name]


class PolicyDecision(Model):
    """The decision of one enforcement point about one capability.

    `reason` is a stable code: `allowed`, `allowed_by_default` (a granted read), `no_rule_allows`, `denied_by_rule`,
    `indeterminate`, `must_refuse`, `prohibited`, `mode_above_declared`, `mode_not_bounded`, `gate_missing`.
    """

    policy_decision_id: PolicyDecisionId
    point: Point
    capability_id: Name | None
    allowed: bool
    reason: Name
    effective_approval_mode: ApprovalMode | None = None
    gates: Seq[GateId] = ()
    requires: Seq[Name] = ()
    prohibits: Seq[Name] = ()
    arg_constraints: Map[Seq[ArgConstraint]] = {}
    bundle_ids: Seq[BundleId] = ()
    matched_rule_ids: Seq[RuleId] = ()
    denying_rule_ids: Seq[RuleId] = ()
    indeterminate: Seq[Indeterminate] = ()
    passed_over: Seq[RuleId] = ()
    observed: Seq[RuleId] = ()
    must_refuse: Seq[Text] = ()
    must_escalate: Seq[Text] = ()
    asserted: Seq[Name] = ()
    facts_digest: Digest

    def sealing_faults(self) -> Iterator[tuple[str, str]]:
        """Refuse an allowed `destructive` call without a gate at `execute`; an earlier point can lack the gate."""
        ungated = self.effective_approval_mode == "destructive" and not self.gates
        if self.allowed and self.point == "execute" and ungated:
            yield "gates", "an allowed `destructive` call needs an approval gate; deny it or name the gate"


@dataclass(frozen=True, slots=True)
class LeveledBundle:
    """A bundle with the level at which it applies, its version and its content address."""

    level: Level
    bundle: PolicyBundle
    version: str
    digest: str


@dataclass(frozen=True, slots=True)
class CapabilityView:
    """A capability as policy sees it: its id, its declared mode, and the facts below the root `capability`."""

    capability_id: str
    declared_mode: ApprovalMode
    facts: Mapping[str, Any] = field(default_factory=dict)
