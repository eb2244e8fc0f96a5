"""The controls that policy decisions raise: gates, escalations, required evidence, bounds on arguments, prohibitions.

A control binds from the decision that raised it on, whichever point that was: one raised at `compile` governs every
later call of that capability, one raised at `plan` the call of that step. Controls only add up; nothing removes one.
Source: docs/design/contracts.md, "Policy".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.policy import ArgConstraint, PolicyDecision
from contextos.contracts.envelopes.tool import CapabilityDefinition
from contextos.contracts.model import final_fields
from contextos.errors import Problem

CheckArgs = Callable[[Mapping[str, Sequence[ArgConstraint]], Mapping[str, Any], bool], Sequence[Problem]]
"""(bounds by argument, arguments, whether a gate is active) -> the violated bounds."""


@final_fields
class Controls:
    """The controls that one or more policy decisions raised, united."""

    gates: frozenset[str] = frozenset()
    must_escalate: frozenset[str] = frozenset()
    requires: frozenset[str] = frozenset()
    arg_constraints: Mapping[str, tuple[ArgConstraint, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, decision: PolicyDecision) -> Controls:
        """Return the controls that a decision raises, whether it allows or not."""
        bounds = {name: tuple(constraints) for name, constraints in decision.arg_constraints.items()}
        return cls(frozenset(decision.gates), frozenset(decision.must_escalate), frozenset(decision.requires), bounds)

    def __or__(self, other: Controls) -> Controls:
        names = sorted({*self.arg_constraints, *other.arg_constraints})
        return Controls(
            self.gates | other.gates,
            self.must_escalate | other.must_escalate,
            self.requires | other.requires,
            {
                name: _distinct((*self.arg_constraints.get(name, ()), *other.arg_constraints.get(name, ())))
                for name in names
            },
        )

    def bind(self, decision: PolicyDecision) -> PolicyDecision:
        """Return the decision with these controls united into its own."""
        if self == NO_CONTROLS:
            return decision
        own = Controls.of(decision)
        united = own | self
        changed: dict[str, Any] = {
            name: tuple(sorted(getattr(united, name)))
            for name in ("gates", "must_escalate", "requires")
            if getattr(united, name) != getattr(own, name)
        }
        if united.arg_constraints != own.arg_constraints:
            changed["arg_constraints"] = united.arg_constraints
        return decision.model_copy(update=changed) if changed else decision


NO_CONTROLS = Controls()


@final_fields
class RunControls:
    """The controls that the decisions of a run raised so far, by what they govern.

    `steps` has the key `<plan revision>/<step id>`.
    """

    capabilities: Mapping[str, Controls] = field(default_factory=dict)
    steps: Mapping[str, Controls] = field(default_factory=dict)

    def with_compiled(self, decisions: Mapping[str, PolicyDecision]) -> RunControls:
        """Add the decisions at `compile`, by capability."""
        return RunControls(_united(self.capabilities, decisions.items()), self.steps)

    def with_planned(self, revision: int, decisions: Mapping[str, PolicyDecision]) -> RunControls:
        """Add the decisions at `plan`, by step id."""
        keyed = ((f"{revision}/{step_id}", decision) for step_id, decision in decisions.items())
        return RunControls(self.capabilities, _united(self.steps, keyed))

    def on_call(self, capability_id: str, key: str) -> Controls:
        """Return the controls on the call of a capability by the step with this key."""
        return self.capabilities.get(capability_id, NO_CONTROLS) | self.steps.get(key, NO_CONTROLS)

    @property
    def must_escalate(self) -> tuple[str, ...]:
        """Return what escalates the whole run, about whichever capability it was raised."""
        return tuple(sorted(frozenset().union(*(one.must_escalate for one in self.capabilities.values()))))


NO_RUN_CONTROLS = RunControls()


def _united(raised: Mapping[str, Controls], decisions: Iterable[tuple[str, PolicyDecision]]) -> dict[str, Controls]:
    united = dict(raised)
    for name, decision in decisions:
        united[name] = united.get(name, NO_CONTROLS) | Controls.of(decision)
    return united


def _distinct(constraints: Iterable[ArgConstraint]) -> tuple[ArgConstraint, ...]:
    by_text = {canonical(constraint.to_json()): constraint for constraint in constraints}
    return tuple(by_text.values())


def bind_prohibited(
    decision: PolicyDecision, matched: Iterable[str], prohibiting: Mapping[str, Sequence[str]]
) -> PolicyDecision:
    """Return the decision about a tool, denied if one of the rules that `matched` in the run until now prohibits it.

    `prohibiting` has the tools that a rule prohibits, by its id.
    """
    if not prohibiting:
        return decision
    by = tuple(rule for rule in matched if decision.capability_id in prohibiting.get(rule, ()))
    if not by:
        return decision
    # A pack that observes is bound by the rules above it also where its own rules deny the same call.
    denying = tuple(dict.fromkeys((*decision.denying_rule_ids, *by)))
    denied = {"allowed": False, "reason": "prohibited"} if decision.allowed else {}
    return decision.model_copy(update={"denying_rule_ids": denying, **denied})


def required_of(definition: CapabilityDefinition, requires: Iterable[str]) -> frozenset[str]:
    """Return the evidence that policy requires of a call. A read cannot require what only it produces."""
    return frozenset(requires) - frozenset(definition.produces if definition.kind == "read" else ())
