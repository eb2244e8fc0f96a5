"""The facts that policy decides from, and the controls that decisions raise: gates, escalations, required evidence,
bounds on arguments, prohibitions.

A control binds from the decision that raised it on, whichever point that was: one raised at `compile` governs every
later call of that capability, one raised at `plan` the call of that step. Controls only add up; nothing removes one.
Source: docs/design/contracts.md, "Policy".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any

from contextos.contracts.encoding.jcs import canonical, digest
from contextos.contracts.envelopes.policy import ArgConstraint, CapabilityView, FactMember, PolicyDecision, fact_member
from contextos.contracts.envelopes.tool import CapabilityDefinition
from contextos.contracts.model import final_fields
from contextos.errors import Problem

CheckArgs = Callable[[Mapping[str, Sequence[ArgConstraint]], Mapping[str, Any], bool], Sequence[Problem]]
"""(bounds by argument, arguments, whether a gate is active) -> the violated bounds."""


class KnownFacts(dict[str, Any]):
    """Facts by root. The canonical text of a root is made once, also for what is made of these facts.

    Raises:
        MalformedJson: a value is not JSON; raised where its text is needed first.
    """

    def __init__(
        self,
        facts: Mapping[str, Any],
        members: Mapping[str, FactMember] = MappingProxyType({}),
        served: tuple[str | None, str | None] | None = None,
    ) -> None:
        super().__init__(facts)
        self._made, self._served = members, served
        self._digest: str | None = None
        self._about: dict[FactMember, KnownFacts] = {}

    @property
    def served(self) -> tuple[str | None, str | None]:
        """The intent and the environment, as the run and its request state them; no intent if they disagree."""
        if self._served is None:
            run, request = ({} if not isinstance(one, dict) else one for one in (self.get("run"), self.get("request")))
            stated = (run.get("intent"), request.get("intent"), run.get("environment"))
            of_run, of_request, environment = (one if isinstance(one, str) and one else None for one in stated)
            intent = of_run or of_request if None in (of_run, of_request) or of_run == of_request else None
            self._served = intent, environment
        return self._served

    def also(self, facts: Mapping[str, Any]) -> KnownFacts:
        """Return these facts with other roots beside or instead of theirs."""
        members = {root: one for root, one in self._members().items() if root not in facts}
        served = self.served if facts.keys().isdisjoint(("run", "request")) else None
        return KnownFacts({**self, **facts}, members, served)

    def about(self, tool: CapabilityView) -> KnownFacts:
        """Return these facts with those of a tool."""
        found = self._about.get(tool.member)
        if found is None:
            members = {**self._members(), "capability": tool.member}
            found = self._about[tool.member] = KnownFacts({**self, "capability": tool.facts}, members, self.served)
        return found

    def _members(self) -> Mapping[str, FactMember]:
        """The members of all facts, by root."""
        if len(self._made) < len(self):
            made = {root: fact_member(root, value) for root, value in self.items() if root not in self._made}
            self._made = {**self._made, **made}
        return self._made

    @property
    def text(self) -> bytes:
        """The canonical JSON of all facts."""
        return b"{%b}" % b",".join(sorted([text for text, _ in self._members().values()]))

    @property
    def digest(self) -> str:
        """The content address of the object that has the digest of each root."""
        if self._digest is None:
            self._digest = digest(b"{%b}" % b",".join(sorted([digested for _, digested in self._members().values()])))
        return self._digest


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
