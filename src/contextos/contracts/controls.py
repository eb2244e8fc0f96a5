"""The facts from which policy decides, and the controls that decisions raise: gates, escalations, required evidence,
bounds on arguments, prohibitions.

A control binds from the decision that raised it onwards. A control raised at `compile` governs every later call of its
capability; a control raised at `plan` governs the call of its step. Controls add up, and none is ever removed.
Source: docs/design/contracts.md, "Policy".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from contextos.contracts.encoding.jcs import canonical, digest
from contextos.contracts.envelopes.policy import ArgConstraint, CapabilityView, PolicyDecision, fact_member
from contextos.contracts.envelopes.tool import CapabilityDefinition
from contextos.contracts.model import final_fields
from contextos.errors import Problem

CheckArgs = Callable[[Mapping[str, Sequence[ArgConstraint]], Mapping[str, Any], bool], Sequence[Problem]]
"""(bounds by argument, arguments, whether a gate is active) -> the violated bounds."""


Served = tuple[str | None, str | None]
"""The intent and the environment, as the run and its request state them; no intent if they disagree."""


class KnownFacts(dict[str, Any]):
    """Facts by root. The digest of a root is computed once, also for the facts that `also` makes from these.

    Raises:
        MalformedJson: a value is not JSON.
    """

    __slots__ = ("_members", "served")

    def __init__(
        self, facts: Mapping[str, Any], members: Mapping[str, bytes] | None = None, served: Served | None = None
    ) -> None:
        super().__init__(facts)
        self._members = members if members is not None else _digest_members(facts, {})
        self.served = served or _intent_and_environment(facts)

    def also(self, facts: Mapping[str, Any], digests: Mapping[str, str] | None = None) -> KnownFacts:
        """Return these facts with the roots of `facts` added or replaced. `digests` has known digests of roots."""
        served = None if "run" in facts or "request" in facts else self.served
        return KnownFacts({**self, **facts}, {**self._members, **_digest_members(facts, digests or {})}, served)

    def digest(self, tool: CapabilityView | None = None) -> str:
        """Return the content address of the object of the digests of all roots, including `capability` for `tool`."""
        members = sorted([*self._members.values(), tool.member] if tool else self._members.values())
        return digest(b"{%b}" % b",".join(members))


def _digest_members(facts: Mapping[str, Any], digests: Mapping[str, str]) -> dict[str, bytes]:
    return {root: fact_member(root, value, digests.get(root)) for root, value in facts.items()}


def _intent_and_environment(facts: Mapping[str, Any]) -> Served:
    run, request = ({} if not isinstance(root, dict) else root for root in (facts.get("run"), facts.get("request")))
    names = (run.get("intent"), request.get("intent"), run.get("environment"))
    *intents, environment = (name if isinstance(name, str) and name else None for name in names)
    return intents[0] or intents[1] if None in intents or intents[0] == intents[1] else None, environment


@final_fields
class Controls:
    """The controls that one or more policy decisions raised, united."""

    gates: frozenset[str] = frozenset()
    must_escalate: frozenset[str] = frozenset()
    requires: frozenset[str] = frozenset()
    arg_constraints: Mapping[str, tuple[ArgConstraint, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, decision: PolicyDecision) -> Controls:
        """Return the controls that a decision raises, whether or not it allows the call."""
        bounds = {name: tuple(constraints) for name, constraints in decision.arg_constraints.items()}
        return cls(frozenset(decision.gates), frozenset(decision.must_escalate), frozenset(decision.requires), bounds)

    def __or__(self, other: Controls) -> Controls:
        if self == NO_CONTROLS or other == NO_CONTROLS:
            return other if self == NO_CONTROLS else self
        names = sorted({*self.arg_constraints, *other.arg_constraints})
        return Controls(
            self.gates | other.gates,
            self.must_escalate | other.must_escalate,
            self.requires | other.requires,
            {
                name: _distinct_constraints((*self.arg_constraints.get(name, ()), *other.arg_constraints.get(name, ())))
                for name in names
            },
        )

    def bind(self, decision: PolicyDecision) -> PolicyDecision:
        """Return the decision with these controls united into its own."""
        if self == NO_CONTROLS:
            return decision
        raised = Controls.of(decision)
        united = raised | self
        changed: dict[str, Any] = {
            name: tuple(sorted(getattr(united, name)))
            for name in ("gates", "must_escalate", "requires")
            if getattr(united, name) != getattr(raised, name)
        }
        if united.arg_constraints != raised.arg_constraints:
            changed["arg_constraints"] = united.arg_constraints
        return decision.model_copy(update=changed) if changed else decision


NO_CONTROLS = Controls()


@final_fields
class RunControls:
    """The controls that the decisions of a run raised so far: on every call of a capability, and on single steps.

    `capabilities` is by capability id, and `steps` by `<plan revision>/<step id>`.
    """

    capabilities: Mapping[str, Controls] = field(default_factory=dict)
    steps: Mapping[str, Controls] = field(default_factory=dict)

    def with_compiled(self, decisions: Mapping[str, PolicyDecision]) -> RunControls:
        """Add the decisions at `compile`, by capability."""
        return RunControls(_unite(self.capabilities, decisions.items()), self.steps)

    def with_planned(self, revision: int, decisions: Mapping[str, PolicyDecision]) -> RunControls:
        """Add the decisions at `plan`, by step id."""
        by_key = ((f"{revision}/{step_id}", decision) for step_id, decision in decisions.items())
        return RunControls(self.capabilities, _unite(self.steps, by_key))

    def on_call(self, capability_id: str, key: str) -> Controls:
        """Return the controls on the call of a capability by the step with this key."""
        by_tool, by_step = self.capabilities.get(capability_id), self.steps.get(key)
        return by_tool | by_step if by_tool and by_step else by_tool or by_step or NO_CONTROLS

    @property
    def must_escalate(self) -> tuple[str, ...]:
        """Return the guardrails that escalate the whole run, raised about any capability."""
        return tuple(sorted(frozenset().union(*(controls.must_escalate for controls in self.capabilities.values()))))


NO_RUN_CONTROLS = RunControls()


def _unite(controls: Mapping[str, Controls], decisions: Iterable[tuple[str, PolicyDecision]]) -> dict[str, Controls]:
    united = dict(controls)
    for name, decision in decisions:
        if decision.gates or decision.must_escalate or decision.requires or decision.arg_constraints:
            united[name] = united.get(name, NO_CONTROLS) | Controls.of(decision)
    return united


def _distinct_constraints(constraints: Iterable[ArgConstraint]) -> tuple[ArgConstraint, ...]:
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
    prohibiting_ids = tuple(rule for rule in matched if decision.capability_id in prohibiting.get(rule, ()))
    if not prohibiting_ids:
        return decision
    # A pack that observes is bound by the rules above it also where its own rules deny the same call.
    denying = tuple(dict.fromkeys((*decision.denying_rule_ids, *prohibiting_ids)))
    denied = {"allowed": False, "reason": "prohibited"} if decision.allowed else {}
    return decision.model_copy(update={"denying_rule_ids": denying, **denied})


def required_of(definition: CapabilityDefinition, requires: Iterable[str]) -> frozenset[str]:
    """Return the evidence that policy requires for a call. A read is not required to have evidence that it produces."""
    return frozenset(requires) - frozenset(definition.produces if definition.kind == "read" else ())
